// Package bench lets you see how fast Holdfast is beside what a program would
// use instead: redsync, rueidislock and redis_rate on Redis, the bare advisory locks of
// PostgreSQL, and the engines' own counters.
//
//	make bench-peers
//
// runs everything against private servers, in turns of a fraction of a second,
// so that a change of the machine's load meets both sides alike, and writes the
// section "Beside peers" of docs/benchmarks.md. It is a module of its own: the
// peers are dependencies of nothing else.
package bench
