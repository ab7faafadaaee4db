// Package edgev1 lets a program ask an edge node over gRPC: the messages, clients and
// servers generated from the .proto file beside it.
package edgev1
