package main

// The bounds of internal/size, which are the same for one node and for three.

// beside is what another program may notice of each kind of work.
func beside(where string, kinds ...[2]string) (all []bound) {
	for _, k := range kinds {
		kind, text := k[0], where+": a lock taken and given back beside "+k[1]
		all = append(all, bound{kind + "-p99-ms", 20, text + ", 99 %, in milliseconds"}, bound{kind + "-max-ms", 100, text + ", the longest"})
	}
	return append(all,
		bound{"elections", 0, where + ": elections during all that"},
		bound{"lost", 0, where + ": holds of the least TTL that were lost, and calls that failed"})
}

func besideKeys(where string) []bound {
	return beside(where,
		[2]string{"idle", "nothing"},
		[2]string{"range", "a Range over all of them"},
		[2]string{"page", "four readers of pages of ten"},
		[2]string{"sort", "four readers who sort 10,000"},
		[2]string{"save", "a snapshot that is saved"},
		[2]string{"purge", "deletes of 10,000 a call"},
		[2]string{"delete", "a DeleteRange"})
}

func besideHolds(where string) []bound {
	return beside(where,
		[2]string{"idle", "nothing"},
		[2]string{"list", "a List of all names"},
		[2]string{"names", "four readers of a page of the list"},
		[2]string{"info", "an Info of the session"},
		[2]string{"save", "a snapshot that is saved"},
		[2]string{"end", "the end of the session"})
}

func limited(where string) []bound {
	return []bound{
		{"page-ratio", 2, where + ": a page of ten keys of 1,000,000, to one of 1,000 (medians)"},
		{"names-ratio", 2, where + ": a page of the list of as many names, likewise"},
		{"info-ratio", 2, where + ": the time left to a session of as many holds, likewise"},
	}
}

// attach has a third of the TTL, 30 s, for the session.
func attach(where string) []bound {
	return []bound{
		{"attach-s", 10, where + ": killed and started again, until a session of 1,000,000 holds is kept again, from the first other answer on, in seconds"},
		{"peak/before", 2, where + ": its memory meanwhile at most, to that before"},
		{"attached-left", 0, where + ": attachments left of 100,000 sessions that have ended"},
	}
}

func herd(where string) []bound {
	return []bound{
		{"outage-s", 6, where + ": killed under 5,000 clients and started again after 5 s, until connections are taken, in seconds; beyond that the machine was too busy for the next line"},
		{"lost", 0, where + ": holds lost of 5,000 clients with a TTL of 15 s, after 5 s without a node"},
		{"sockets/client", 1.2, where + ": connections a client at most"},
		{"back-s", 2, where + ": until another program's call is answered, once the nodes run again, in seconds"},
	}
}

func tooMany(where string) []bound {
	return []bound{
		{"stream-ms", 1000, where + ": until a watch too many of a connection is refused, in milliseconds"},
		{"stream-unnamed", 0, where + ": of ten, those that are not, or not by the name of the limit"},
		{"wait-ms", 1000, where + ": until a watch too many of a node is refused, likewise"},
		{"wait-unnamed", 0, where + ": of ten, those that are not, or not by the name of the limit"},
		{"beside-p99-ms", 20, where + ": a lock taken and given back meanwhile, 99 %, in milliseconds"},
		{"lost", 0, where + ": holds lost meanwhile, and calls that failed"},
	}
}

func load(where string) []bound {
	return []bound{
		{"written/payload", 5, where + ": bytes written while 1,000,000 keys of 500 bytes are put, to those"},
		{"restart-s/million", 5, where + ": killed and started again, until it answers, in seconds"},
	}
}
