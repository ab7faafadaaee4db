//go:build !linux

package storage

import "os"

func dataSync(f *os.File) error { return f.Sync() }
