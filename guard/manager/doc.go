// Package manager keeps locks, semaphores and guards for holders that only have a name: a
// coordinator calls it on behalf of its agents.
//
//	m, err := manager.New(manager.Config{Space: space})
//	defer m.Close()
//	m.EnsureLock(manager.LockConfig{Name: "main-branch"})
//	token, err := m.AcquireLock(ctx, "main-branch", "agent-7", "")
//	err = m.HeartbeatLock(ctx, "main-branch", "agent-7") // every 15 s
//	err = m.ReleaseLock(ctx, "main-branch", "agent-7")
//
// Each (name, holder) has a session of its own. A holder that sends no heartbeat for the
// stale threshold (60 s) has lost what it holds, a little before the threshold is over,
// so that it knows before anybody else can: its name stays taken, and shown as
// stale, until another acquires it or maintenance reclaims it, both with a new token.
// Maintenance also reclaims what a manager that was killed has left on the names that this
// one has ensured.
// A heartbeat or release that comes later is refused. On a node of Holdfast a heartbeat waits
// for those of others, up to 0.1 s: a program with hundreds of holders sends theirs at a time,
// not one after the other. Backends without the feature
// "reclaim" know no stale holders: there a threshold is refused, and a holder keeps what
// it has as long as the manager lives.
//
// Guards are registered with a condition and what else wakes them. What becomes of them
// is told as events, which are keys under [gather.EventPrefix] on any backend: see
// [Manager.Events].
package manager
