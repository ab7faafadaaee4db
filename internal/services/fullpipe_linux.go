package services

import (
	"os"
	"syscall"
	"testing"
)

// FullPipe is a pipe that takes nothing more until it is read, as that of a program with a
// reader that stalls.
func FullPipe(t testing.TB) (read, write *os.File) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = syscall.SetNonblock(fds[1], true)
	for _, size := range []int{4096, 1} {
		for err := error(nil); err == nil; _, err = syscall.Write(fds[1], make([]byte, size)) {
		}
	}
	_ = syscall.SetNonblock(fds[1], false)
	read, write = os.NewFile(uintptr(fds[0]), "read"), os.NewFile(uintptr(fds[1]), "write")
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}
