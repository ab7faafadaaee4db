//go:build race

package storage_test

// racing: the race detector makes everything ten times slower, and the
// enumerations have nothing for it to find; they run a smaller share.
const racing = true
