// Package backends opens a Space on each backend on which the promises of guards are tested.
package backends
