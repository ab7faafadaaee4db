// Package size measures what a running node, and a group of three, bear: beside a million keys
// or a million holds a small lock stays quick, and short reads stay short; what a program holds
// and 5,000 programs outlive a restart; a limit is told at once.
//
// It is benchmarks only. Nodes and bystanders are processes of their own, clients are those of
// package remote:
//
//	go test ./internal/size -run - -bench 'Keys$/^three$' -benchtime 1x -size.items 100000
package size
