// Package servers lets you see how fast Holdfast's own server is beside etcd,
// ZooKeeper, Redis and PostgreSQL.
//
//	make bench-servers
//
// starts all of them as processes of their own, each with every write on disk
// before it is acknowledged, lets them do the same work in turns of a second or
// two, so that a change of the machine's load meets all alike, and writes the
// section "Beside other servers" of docs/benchmarks.md and the chart
// docs/benchmarks-server.svg.
//
// It is a module of its own, apart from bench/ too: nobody else shall wait for the
// etcd server to be compiled.
package servers
