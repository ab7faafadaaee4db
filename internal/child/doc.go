// Package child runs a command for as long as something is held, and no longer.
//
// The command gets a process group of its own. Signals are passed on to it; when
// the hold is lost, or about to be, it gets SIGTERM and, before the hold's
// deadline, SIGKILL. When it has ended, whatever it left in its group is ended
// too, before the caller gives the hold back.
//
// A second process, the warden, watches over the first: it has the same files
// and connections open, so that the kernel frees nothing as long as it lives.
// When the first is killed, the warden kills the group, sees it gone, and only
// then ends; when the first is stopped, the warden kills the group at the
// deadline.
//
// What leaves the group (setsid) is found by a mark in its environment, the
// variable HOLDFAST_WARDEN, and is ended with a command that is ended. It goes
// on if the command ends by itself, as that of a daemon does.
//
// It needs Linux.
package child
