package filehold

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/filelog"
)

// slots is this process's file of what it holds and awaits of lock files. It is
// mapped: telling costs no system call.
type slots struct {
	mu     sync.Mutex
	f      *os.File
	maps   [][]byte // from the beginnings of pages
	chunks [][]byte // within them
	free   []int
}

// chunkSlots is by how many slots the file grows.
const chunkSlots = 64

func (s *slots) open(path string) (err error) {
	if s.f, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0); err != nil {
		return err
	}
	return s.grow()
}

func (s *slots) close() error {
	if s.f == nil {
		return nil
	}
	errs := []error{s.f.Close()}
	for _, m := range s.maps {
		errs = append(errs, syscall.Munmap(m))
	}
	return errors.Join(errs...)
}

// grow maps another chunk, which is written first so that a full disk is an
// error here and not a fault later.
func (s *slots) grow() error {
	const size = chunkSlots * slotSize
	at := int64(len(s.chunks)) * size
	if _, err := s.f.WriteAt(make([]byte, size), at); err != nil {
		return filelog.Unwritten(s.f.Name(), err)
	}
	pages, err := mapPages(s.f, at, size, os.Getpagesize())
	if err != nil {
		return filelog.Unwritten(s.f.Name(), err)
	}
	for i := range chunkSlots {
		s.free = append(s.free, len(s.chunks)*chunkSlots+i)
	}
	s.maps = append(s.maps, pages)
	s.chunks = append(s.chunks, pages[len(pages)-size:])
	return nil
}

// mapPages maps a part of a file with what stands before it in its first page: the kernel refuses to begin
// within a page, which has 4 KiB, 16 or 64, as it was built.
func mapPages(f *os.File, at int64, size, page int) ([]byte, error) {
	before := int(at % int64(page))
	return syscall.Mmap(int(f.Fd()), at-int64(before), before+size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// take writes v into a free slot.
func (s *slots) take(v *slot) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		if err := s.grow(); err != nil {
			return 0, err
		}
	}
	n := len(s.free) - 1
	i := s.free[n]
	s.free = s.free[:n]
	s.touch(i, func(b []byte) {
		appendSlot(b[:0], v)
	})
	return i, nil
}

// drop frees a slot.
func (s *slots) drop(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(i, func(b []byte) { b[0] = slotFree })
	s.free = append(s.free, i)
}

// touch lets f write a slot. A file that was cut short tells nothing any more,
// and hurts nobody.
func (s *slots) touch(i int, f func(b []byte)) {
	defer func(before bool) {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil && !isFault(p) {
			panic(p)
		}
	}(debug.SetPanicOnFault(true))
	at := i % chunkSlots * slotSize
	f(s.chunks[i/chunkSlots][at : at+slotSize : at+slotSize])
}

// isFault reports that p is a fault of mapped memory.
func isFault(p any) bool {
	_, ok := p.(interface{ Addr() uintptr })
	return ok
}

// readSlots reads the file of a process into buf, which it returns; one that is
// gone has none.
func readSlots(path string, buf []byte) ([]slot, []byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, buf, nil
	}
	if err != nil {
		return nil, buf, err
	}
	defer f.Close()
	b := bytes.NewBuffer(buf[:0])
	if _, err := b.ReadFrom(f); err != nil {
		return nil, buf, err
	}
	return decodeSlots(b.Bytes()), b.Bytes(), nil
}
