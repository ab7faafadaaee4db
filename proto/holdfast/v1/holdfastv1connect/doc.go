// Package holdfastv1connect lets a program speak Holdfast's wire as JSON over
// plain HTTP: the handlers and clients generated from the .proto files.
package holdfastv1connect
