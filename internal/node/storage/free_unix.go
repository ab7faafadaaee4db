//go:build linux || darwin

package storage

import "syscall"

// errQuota is the system's word for a user or project that may take no more.
const errQuota = syscall.EDQUOT

// Free is of Space.
func (OS) Free(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
