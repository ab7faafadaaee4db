package guard

import (
	"slices"
	"time"
)

// Kind is what a [Condition] looks at; its text is the one used in files.
type Kind string

// The kinds.
const (
	KindLockFree           Kind = "lock_free"
	KindLockHeldBy         Kind = "lock_held_by"
	KindSemaphoreAvailable Kind = "semaphore_available"
	KindBranchExists       Kind = "branch_exists"
	KindBranchNotExists    Kind = "branch_not_exists"
	KindBranchMerged       Kind = "branch_merged"
	KindIssuesComplete     Kind = "issues_complete"
	KindIssueStatus        Kind = "issue_status"
	KindFileExists         Kind = "file_exists"
	KindFileNotExists      Kind = "file_not_exists"
	KindSessionAlive       Kind = "session_alive"
	KindCustomCheck        Kind = "custom_check"
	KindCounter            Kind = "counter"
	KindLeader             Kind = "leader"
	KindLimitAvailable     Kind = "limit_available"
	KindKey                Kind = "key"
	KindTimeWindow         Kind = "time_window"
	KindAll                Kind = "all"
	KindAny                Kind = "any"
	KindNot                Kind = "not"
)

// Condition is something that is true, false or unknown. Make it with the functions of
// this package; [Condition.Check] says what is wrong with one that was made otherwise.
type Condition struct {
	Kind Kind
	// Name is the lock, semaphore, branch, issue, filter, file, session, command,
	// counter, election, limiter or key.
	Name string `json:",omitempty"`
	// Other is the holder of lock_held_by, the target of branch_merged, the status of
	// issue_status, the owner of leader, the key of limit_available, the value of key
	// and the description of custom_check.
	Other string `json:",omitempty"`
	// Amount is the weight of a semaphore, the cost of a limit and the number that a
	// counter is compared with.
	Amount int64 `json:",omitempty"`
	// Limit is that of a semaphore, for as long as nobody has used it: so much is free then.
	// 0: it is not known, but for that every semaphore has room for 1.
	Limit int64 `json:",omitempty"`
	// Is is how a counter is compared, and whether a key has to exist.
	Is Relation `json:",omitempty"`
	// Window is that of time_window.
	Window Window `json:",omitzero"`
	// Of are the parts of all and any, and the one of not.
	Of []Condition `json:",omitempty"`
}

// Relation is how a counter or a key is compared.
type Relation string

// The relations; Exists and Absent are of keys.
const (
	Equal    Relation = "=="
	NotEqual Relation = "!="
	AtLeast  Relation = ">="
	AtMost   Relation = "<="
	Exists   Relation = "exists"
	Absent   Relation = "absent"
)

// Window is a part of each day, on some days of the week.
type Window struct {
	// From and To are times of the day: 22h to 6h goes over midnight and belongs to
	// the day on which it began. Equal: the whole day.
	From, To time.Duration
	// Days are the days on which it begins; none: every day.
	Days []time.Weekday
	// Offset is how far the clock that is meant is east of UTC.
	Offset time.Duration
}

// LockFree is true while nobody holds the lock.
func LockFree(name string) Condition { return Condition{Kind: KindLockFree, Name: name} }

// LockHeldBy is true while holder, by its owner text, has the lock.
func LockHeldBy(name, holder string) Condition {
	return Condition{Kind: KindLockHeldBy, Name: name, Other: holder}
}

// SemaphoreAvailable is true while weight of the semaphore is free. Of one that nobody has used
// yet all is free; how much that is says [Condition.Limit], since the first user sets it.
func SemaphoreAvailable(name string, weight int64) Condition {
	return Condition{Kind: KindSemaphoreAvailable, Name: name, Amount: weight}
}

// WithLimits is the condition with the limits of its semaphores that limit knows, for leaves that name
// none; 0: it knows none.
func (c Condition) WithLimits(limit func(semaphore string) int64) Condition {
	if c.Kind == KindSemaphoreAvailable && c.Limit == 0 {
		c.Limit = limit(c.Name)
	}
	c.Of = slices.Clone(c.Of)
	for i := range c.Of {
		c.Of[i] = c.Of[i].WithLimits(limit)
	}
	return c
}

// BranchExists is true if the repository has the branch.
func BranchExists(branch string) Condition {
	return Condition{Kind: KindBranchExists, Name: branch}
}

// BranchNotExists is true if the repository does not have the branch.
func BranchNotExists(branch string) Condition {
	return Condition{Kind: KindBranchNotExists, Name: branch}
}

// BranchMerged is true if all of branch is in into.
func BranchMerged(branch, into string) Condition {
	return Condition{Kind: KindBranchMerged, Name: branch, Other: into}
}

// IssuesComplete is true if no issue that matches the filter is open, and some match.
func IssuesComplete(filter string) Condition {
	return Condition{Kind: KindIssuesComplete, Name: filter}
}

// IssueStatus is true while the issue has the status.
func IssueStatus(issue, status string) Condition {
	return Condition{Kind: KindIssueStatus, Name: issue, Other: status}
}

// FileExists is true while there is such a file.
func FileExists(path string) Condition { return Condition{Kind: KindFileExists, Name: path} }

// FileNotExists is true while there is no such file.
func FileNotExists(path string) Condition { return Condition{Kind: KindFileNotExists, Name: path} }

// SessionAlive is true while the session, a terminal's or a process, is there.
func SessionAlive(name string) Condition { return Condition{Kind: KindSessionAlive, Name: name} }

// CustomCheck is true if the command, as the gatherer knows it, succeeds.
func CustomCheck(command, description string) Condition {
	return Condition{Kind: KindCustomCheck, Name: command, Other: description}
}

// Counter is true while the counter compares with n as is says.
func Counter(name string, is Relation, n int64) Condition {
	return Condition{Kind: KindCounter, Name: name, Is: is, Amount: n}
}

// Leader is true while owner leads the election; an empty owner: while anybody does.
func Leader(election, owner string) Condition {
	return Condition{Kind: KindLeader, Name: election, Other: owner}
}

// LimitAvailable is true while the limiter would allow cost for the key.
func LimitAvailable(limiter, key string, cost int64) Condition {
	return Condition{Kind: KindLimitAvailable, Name: limiter, Other: key, Amount: cost}
}

// KeyExists is true while there is such a key.
func KeyExists(key string) Condition { return Condition{Kind: KindKey, Name: key, Is: Exists} }

// KeyAbsent is true while there is no such key.
func KeyAbsent(key string) Condition { return Condition{Kind: KindKey, Name: key, Is: Absent} }

// KeyEquals is true while the key has the value.
func KeyEquals(key, value string) Condition {
	return Condition{Kind: KindKey, Name: key, Is: Equal, Other: value}
}

// During is true within the window.
func During(w Window) Condition { return Condition{Kind: KindTimeWindow, Window: w} }

// All is true if every part is, false if any is false, else unknown. All of nothing is
// true.
func All(of ...Condition) Condition { return Condition{Kind: KindAll, Of: of} }

// Any is true if any part is, false if every part is false, else unknown. Any of
// nothing is false.
func Any(of ...Condition) Condition { return Condition{Kind: KindAny, Of: of} }

// Not is true if c is false, false if c is true, else unknown.
func Not(c Condition) Condition { return Condition{Kind: KindNot, Of: []Condition{c}} }
