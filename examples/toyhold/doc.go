// Package toyhold keeps a Space on a toy server that knows five one-line
// commands: the example of docs/adding-a-backend.md.
//
//	srv, err := toyhold.Serve("127.0.0.1:0")
//	s, err := holdfast.Open(ctx, "toy://"+srv.Addr())
//
// It has locks with fencing tokens, several names at once, counters, sequences,
// keys and watches, all from package driver/onstore.
//
// # What it cannot promise
//
//	promise       kept?
//	durable       no: the server keeps everything in memory, and a new one begins at revision 1
//	many-machines yes
//	lost-first    not declared; see package driver/onstore
package toyhold
