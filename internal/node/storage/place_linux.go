package storage

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is of Placer.
func (OS) Place(name string) (Place, error) {
	var p Place
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return p, err
	}
	if p.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return p, err
	}
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO|unix.STATX_BTIME, &st) == nil {
		p.File = st.Ino
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		p.Born = uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec)
	}
	p.Host, _ = os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id") // there is none in many containers
	p.Machine = strings.TrimSpace(string(machine))
	return p, nil
}
