package guard

import (
	"cmp"
	"slices"
	"time"
)

// Source is where a fact comes from.
type Source string

// The sources.
const (
	SourceLock      Source = "lock"
	SourceSemaphore Source = "semaphore"
	SourceBranch    Source = "branch"
	SourceMerged    Source = "merged"
	SourceIssues    Source = "issues"
	SourceIssue     Source = "issue"
	SourceFile      Source = "file"
	SourceSession   Source = "session"
	SourceCommand   Source = "command"
	SourceCounter   Source = "counter"
	SourceElection  Source = "election"
	SourceLimit     Source = "limit"
	SourceKey       Source = "key"
	SourceClock     Source = "clock"
)

// Input names one fact. Leaves that ask the same share it.
type Input struct {
	Source Source
	Name   string
	Other  string // the target of a merge, the key of a limit
}

// Compare orders inputs by source and names.
func (i Input) Compare(o Input) int {
	return cmp.Or(cmp.Compare(i.Source, o.Source), cmp.Compare(i.Name, o.Name), cmp.Compare(i.Other, o.Other))
}

// Fact is what was found out.
type Fact struct {
	// Err says why it could not be found out; the rest then means nothing.
	Err string
	// Is: the lock is held, the branch, file, session or key is there, the branch is
	// merged, the command succeeded, somebody leads.
	Is bool
	// Text is the holder of a lock, the leader, the status of an issue, the value of a
	// key, or what a command said. Others are the further holders of a lock that has several.
	Text   string
	Others []string
	// Number is what a semaphore or limit has left, a counter's value, how many issues
	// are open, and of the clock nanoseconds since 1970.
	Number int64
	// Unused: nobody has used the semaphore yet, so that it has no limit; Number means nothing.
	Unused bool
	// Total is how many issues match, and the most that a semaphore or limit can have left; 0 of these: not known.
	Total int64
	// Since is when it became so; zero: not known.
	Since time.Time
	// Revision is that of the backend at which it was read; 0: it has none.
	Revision uint64
	// From tells people where it was read.
	From string
}

// Inputs are the facts at hand; an absent one was not gathered.
type Inputs map[Input]Fact

// Input is the fact that a leaf asks for; of an unknown kind it is the zero Input, which no source
// finds out.
func (c *Condition) Input() Input {
	switch c.Kind {
	case KindLockFree, KindLockHeldBy:
		return Input{Source: SourceLock, Name: c.Name}
	case KindSemaphoreAvailable:
		return Input{Source: SourceSemaphore, Name: c.Name}
	case KindBranchExists, KindBranchNotExists:
		return Input{Source: SourceBranch, Name: c.Name}
	case KindBranchMerged:
		return Input{Source: SourceMerged, Name: c.Name, Other: c.Other}
	case KindIssuesComplete:
		return Input{Source: SourceIssues, Name: c.Name}
	case KindIssueStatus:
		return Input{Source: SourceIssue, Name: c.Name}
	case KindFileExists, KindFileNotExists:
		return Input{Source: SourceFile, Name: c.Name}
	case KindSessionAlive:
		return Input{Source: SourceSession, Name: c.Name}
	case KindCustomCheck:
		return Input{Source: SourceCommand, Name: c.Name}
	case KindCounter:
		return Input{Source: SourceCounter, Name: c.Name}
	case KindLeader:
		return Input{Source: SourceElection, Name: c.Name}
	case KindLimitAvailable:
		return Input{Source: SourceLimit, Name: c.Name, Other: c.Other}
	case KindKey:
		return Input{Source: SourceKey, Name: c.Name}
	case KindTimeWindow:
		return Input{Source: SourceClock}
	}
	return Input{}
}

// RequiredInputs are the facts that the condition takes, each once, in order.
func (c *Condition) RequiredInputs() []Input {
	list := c.inputs(nil)
	slices.SortFunc(list, Input.Compare)
	return slices.Compact(list)
}

func (c *Condition) inputs(list []Input) []Input {
	if !c.composed() {
		return append(list, c.Input())
	}
	for i := range c.Of {
		list = c.Of[i].inputs(list)
	}
	return list
}

// composed reports that the condition has parts.
func (c *Condition) composed() bool {
	return c.Kind == KindAll || c.Kind == KindAny || c.Kind == KindNot
}
