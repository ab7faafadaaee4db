//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pghold

import "time"

const canNap = false

func awaitInput(uintptr, time.Duration) bool { return false }
