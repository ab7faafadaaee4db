// Package server runs a Holdfast node: alone on one directory, or as a member of
// a replicated group.
//
//	srv, err := server.New(server.Config{Dir: "/var/lib/app/holdfast"})
//	defer srv.Close()
//
// What was answered is on disk: locks, counters, sequences and keys survive a
// crash of the program, and a session that is renewed in time survives it too.
// One process at a time may use a directory; a second one gets an error that
// says so. A node that loses its directory, removed or replaced, while it runs ends within
// a second.
//
// [Server.Space] is the whole API on the node, in process; the URL embed:///dir
// starts a node and opens one in one step. For other processes package server/api
// serves it on a port, where package remote and other clients find it.
//
// Some methods are for the packages of this module, which serve a node to others through them,
// and carry no promise of compatibility: [Server.Events], [Server.Look], [Server.Members], [Server.Renew],
// [Server.Status], [Server.Submit], [Server.Watch], [Stream.Attach], [Stream.Detach], [Watch.Next],
// [Watch.Place] and [Feed.Place]. They take and give types of internal packages, which change
// with the log and the wire. Programs use the Space, or package remote.
package server
