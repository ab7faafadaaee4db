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
	p.Lasts = lasts(name)
	p.Host, _ = os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id") // there is none in many containers
	p.Machine = strings.TrimSpace(string(machine))
	return p, nil
}

// zfsMagic is the type of ZFS, which is no part of Linux.
const zfsMagic = 0x2fc12fc1

// lasts reports whether a file lies on a file system that keeps its inode and time of birth over every
// restart. FAT and many that run over a network or in user space number files anew.
func lasts(name string) bool {
	var st unix.Statfs_t
	if unix.Statfs(name, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return false
}
