package main

// suites is what make bench runs; each line of its table is a bound here.
var suites = []suite{
	{pkg: "./internal/core", bench: "AcquireRelease$", bounds: []bound{
		{"maps", 15, "acquire and release in the machine, with decoding, dedupe, events and hash, to insert and delete of the name in a Go map under a mutex"},
	}},
	{pkg: "./internal/core", bench: "Beside$", bounds: []bound{
		{"known-ratio", 2, "the same beside 1,000,000 known names, to that beside 1,000"},
		{"new-ratio", 4, "the same of a new name, likewise"},
	}},
	{pkg: "./internal/core", bench: "Million$", bounds: []bound{
		{"B/lock", 500, "bytes of heap a held lock, of 1,000,000 with one session for every ten"},
		{"expire/grant", 3, "expiring them, to granting them, in processor time"},
	}},
	{pkg: "./internal/core", bench: "Drain$", bounds: []bound{
		{"ten-times-ratio", 15, "draining 10,000 waiters, to draining 1,000, in processor time"},
	}},
	{pkg: "./internal/core", bench: "Snapshot$", bounds: []bound{
		{"longest-ms", 20, "longest apply while a snapshot of 1,000,000 locks is written, in milliseconds"},
	}},
	{pkg: "./internal/core", bench: "PrefixDelete$", bounds: []bound{
		{"longest-ms", 20, "an apply that deletes as many keys of a prefix of 1,000,000 as it may, in milliseconds of processor time"},
		{"beside-many-ratio", 3, "a page of such a delete, beside 1,000,000 keys to beside 20,000"},
	}},
	{pkg: "./internal/core", bench: "Many$", bounds: []bound{
		{"by-token-ratio", 3, "acquire and release by token of a semaphore with 100,000 holders, to one with 10"},
		{"late-ratio", 3, "a failed try of it, while a session is late and others may take its claims"},
		{"try-ratio", 3, "a failed try beside 100,000 waiters, to beside 10"},
	}},
	{pkg: "./internal/core", bench: "After$", bounds: []bound{
		{"locks-ratio", 0.25, "heap after 1,000,000 locks have ended, to that while they were held"},
		{"keys-ratio", 0.25, "likewise of keys"},
		{"sessions-ratio", 0.25, "likewise of sessions"},
	}},
	{pkg: "./internal/core", bench: "LimiterLeft$", bounds: []bound{
		{"left/used", 0.01, "heap after 1,000,000 keys of a limiter were used and left, to that while they were used"},
	}},
	{pkg: "./guard", bench: "TwentyLeaves$", bounds: []bound{
		{"ns/op", 5_000, "a guard of twenty leaves that passes, in nanoseconds"},
		{"allocs/op", 0, "its allocations"},
	}},
	{pkg: "./edge", bench: "Take$/^hot$", bounds: []bound{
		{"ns/op", 100, "a decision of an edge limiter on one key, in nanoseconds"},
		{"allocs/op", 0, "its allocations"},
	}},
	{pkg: "./edge", bench: "Take$/^keys=1000000$", bounds: []bound{
		{"ns/op", 1_000, "the same of 1,000,000 keys in turn"},
		{"allocs/op", 0, "its allocations"},
	}},
	{pkg: "./edge", bench: "Seed$/^add$", bounds: []bound{
		{"ours/seed", 0.25, "counting in a counter of 100 actors that others read, to a map under a lock"},
	}},
	{pkg: "./edge", bench: "Seed$/^value$", bounds: []bound{
		{"ours/seed", 0.01, "its value, to the sum over that map"},
	}},
	{pkg: "./edge", bench: "Seed$/^merge$", bounds: []bound{
		{"ours/seed", 1, "merging the state of another node into it, likewise"},
	}},
	{pkg: "./edge", bench: "Seed$/^encode$", bounds: []bound{
		{"ours/seed", 0.05, "encoding its state, to that map as JSON"},
	}},
	{pkg: "./edge", bench: "Bytes$", bounds: []bound{
		{"B/key", 200, "bytes of heap a key of an edge limiter that three nodes use, of 1,000,000"},
	}},
	{pkg: "./memhold", bench: "Pair$", bounds: []bound{
		{"ns/op", 10_000, "acquire and release through the API in memory, in nanoseconds"},
		{"allocs/op", 15, "its allocations"},
	}},
	{pkg: "./filehold", bench: "(Pair|CounterAdd)$", bounds: []bound{
		{"x-flock", 2, "acquire and release of a free mutex on files, to open, flock, fstat, stat and close of the same file, in processor time"},
		{"x-append", 2, "adding to a counter on files, to an append of as much with fdatasync"},
	}},
	{pkg: "./server", bench: "Proposer$", bounds: []bound{
		{"p50/append", 1.6, "one caller's command on a node alone, through the API, to an fdatasync append to a bare file (medians)"},
	}},
	{pkg: "./server", bench: "Proposers$", bounds: []bound{
		{"bare/node", 2.5, "commands a second of a bare raft loop on the same log, to those of a node alone: 1,024 sessions that lock and unlock"},
	}},
	{pkg: "./server", bench: "Three$", bounds: []bound{
		{"bare/three", 2.5, "the same on three nodes, each a process, over sockets; the sessions are in the leader's"},
	}},
	{pkg: "./server", bench: "Recover$", bounds: []bound{
		{"recover-s", 5, "start of a node that was killed after 1,000,000 commands, in seconds"},
	}},
}

// sizes is what make bench-sizes runs: large worlds on one node and on three.
var sizes = []suite{
	{pkg: "./internal/size", bench: "Keys$/^one$", bounds: besideKeys("one node with 1,000,000 keys")},
	{pkg: "./internal/size", bench: "Keys$/^three$", bounds: besideKeys("three nodes with 1,000,000 keys")},
	{pkg: "./internal/size", bench: "Holds$/^one$", bounds: besideHolds("one node with a session of 1,000,000 holds")},
	{pkg: "./internal/size", bench: "Holds$/^three$", bounds: besideHolds("three nodes with a session of 1,000,000 holds")},
	{pkg: "./internal/size", bench: "Limited$/^one$", bounds: limited("one node")},
	{pkg: "./internal/size", bench: "Limited$/^three$", bounds: limited("three nodes")},
	{pkg: "./internal/size", bench: "Attach$/^one$", bounds: append(attach("one node"),
		bound{"relink-s", 10, "one node: its link broken, until that session is kept again, in seconds"})},
	{pkg: "./internal/size", bench: "Attach$/^three$", bounds: attach("three nodes")},
	{pkg: "./internal/size", bench: "Herd$/^one$", bounds: herd("one node")},
	{pkg: "./internal/size", bench: "Herd$/^three$", bounds: herd("three nodes")},
	{pkg: "./internal/size", bench: "Waits$/^one$", bounds: tooMany("one node")},
	{pkg: "./internal/size", bench: "Waits$/^three$", bounds: tooMany("three nodes")},
	{pkg: "./internal/size", bench: "Load$/^one$", bounds: load("one node")},
	{pkg: "./internal/size", bench: "Load$/^three$", bounds: load("three nodes")},
}
