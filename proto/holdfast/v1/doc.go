// Package holdfastv1 lets a program speak Holdfast's wire: the messages and the
// gRPC clients and servers generated from the .proto files beside it. Go programs
// open a holdfast:// URL instead.
package holdfastv1
