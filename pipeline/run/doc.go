// Package run runs pipelines: it waits for conditions, takes what a phase holds, runs its
// command, and keeps every event, so that another runner goes on where one was lost.
//
//	p, err := run.New(run.Config{Space: space, Gatherer: gatherer, Runner: runner})
//	ref, err := p.Submit(ctx, run.Submission{Definition: d})
//	state, err := p.Run(ctx, ref) // until it has ended
//
// A run is a log of events in keys of the Space. An event is one transaction against the
// revision of the one before, together with the state after it, with what is told of it
// (keys under [gather.EventPrefix]) and with the queue, if it is about that: so what the
// log says is what has happened, also when others write. The log keeps the last [MaxEvents]
// events of a run, and the Space the last runs of a pipeline that have ended: see
// [Config.Keep].
//
// Any number of programs may run the same pipelines, and may call Run for the same run: an
// election decides which of them runs it, and its token is in the log, so that an
// earlier runner that comes late is refused. That a command starts is kept before it does.
// If its runner is lost then, nobody knows how it ended: a phase with retries is started
// again, any other asks: see [Pipelines.Answer].
//
// The backend needs transactions, watches, sessions and elections: all but nats have them.
package run
