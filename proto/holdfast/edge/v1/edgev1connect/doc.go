// Package edgev1connect serves and calls an edge node by gRPC, gRPC-Web and JSON over one
// HTTP handler: generated from the .proto file beside it.
package edgev1connect
