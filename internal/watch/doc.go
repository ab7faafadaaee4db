// Package watch hands events to the watchers that asked for them: a ring of recent
// events, a prefix tree of watchers, and filters.
//
// A [Hub] is pure: [Hub.Publish] says which watchers have something to read,
// and the owner of the hub wakes them. A watcher sees every event that matches
// its filter, in order, each once; if it is too slow it gets one resync instead
// of the events that were dropped, never a silent gap, and it never holds up
// Publish. The hub does no locking.
package watch
