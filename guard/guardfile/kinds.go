package guardfile

import "github.com/holdfast-io/holdfast/guard"

// kind is a row of the table from which both the parser and the schema are made.
type kind struct {
	kind guard.Kind
	doc  string
	// fields are its fields, the main one first.
	fields []field
	// start is the condition before any field is set: the defaults.
	start guard.Condition
	// choose: one of the fields that are choices has to be there.
	choose bool
}

// field is one field of a kind.
type field struct {
	name string
	doc  string
	is   *format
	need bool
	// choice: it excludes the other choices of its kind.
	choice bool
	set    func(*guard.Condition, value)
}

// kinds are the leaves, in the order of the schema.
var kinds = []kind{
	{kind: guard.KindLockFree, doc: "Nobody holds the lock.", fields: []field{name("name", "The lock.")}},
	{kind: guard.KindLockHeldBy, doc: "The holder has the lock.",
		fields: []field{name("name", "The lock."), other("holder", "The owner text of the holder.")}},
	{kind: guard.KindSemaphoreAvailable, doc: "So much of the semaphore is free.", start: guard.Condition{Amount: 1},
		fields: []field{name("name", "The semaphore."), amount("weight", "How much has to be free; 1 if it is left out."),
			limited("limit", "Its limit, for as long as nobody has used it: a weight above 1 is not known to be free then without it.")}},
	{kind: guard.KindBranchExists, doc: "The repository has the branch.", fields: []field{name("branch", "The branch.")}},
	{kind: guard.KindBranchNotExists, doc: "The repository does not have the branch.", fields: []field{name("branch", "The branch.")}},
	{kind: guard.KindBranchMerged, doc: "All of the branch is in another.",
		fields: []field{name("branch", "The branch."), other("into", "The branch that has all of it.")}},
	{kind: guard.KindIssuesComplete, doc: "No issue that matches the filter is open, and some match.",
		fields: []field{name("filter", "The filter, in the words of the tracker.")}},
	{kind: guard.KindIssueStatus, doc: "The issue has the status.",
		fields: []field{name("issue", "The issue; quote a number."), other("status", "The status.")}},
	{kind: guard.KindFileExists, doc: "There is such a file.", fields: []field{name("path", "The path of the file.")}},
	{kind: guard.KindFileNotExists, doc: "There is no such file.", fields: []field{name("path", "The path of the file.")}},
	{kind: guard.KindSessionAlive, doc: "The session, a terminal's or a process, is there.", fields: []field{name("name", "The session.")}},
	{kind: guard.KindCustomCheck, doc: "The command succeeds.",
		fields: []field{name("command", "The command, as the gatherer knows it."), optional(other("description", "What it checks, for people."))}},
	{kind: guard.KindCounter, doc: "The counter compares so with a number.", choose: true,
		fields: []field{name("name", "The counter."), compared("equals", guard.Equal), compared("differs_from", guard.NotEqual),
			compared("at_least", guard.AtLeast), compared("at_most", guard.AtMost)}},
	{kind: guard.KindLeader, doc: "The election has a leader.",
		fields: []field{name("election", "The election."), optional(other("owner", "The owner text of the leader; anybody if it is left out."))}},
	{kind: guard.KindLimitAvailable, doc: "The limiter would allow the cost.", start: guard.Condition{Amount: 1},
		fields: []field{name("limiter", "The limiter."), optional(other("key", "The key within the limiter.")),
			amount("cost", "The cost; 1 if it is left out.")}},
	{kind: guard.KindKey, doc: "The key exists, does not exist, or has a value; it exists if neither is said.", start: guard.Condition{Is: guard.Exists},
		fields: []field{name("key", "The key."), exists, valued}},
	{kind: guard.KindTimeWindow, doc: "The time is within a part of the day.", fields: windowFields},
}

func name(name, doc string) field {
	return field{name: name, doc: doc, is: text, need: true, set: func(c *guard.Condition, v value) { c.Name = v.text }}
}

func other(name, doc string) field {
	return field{name: name, doc: doc, is: text, need: true, set: func(c *guard.Condition, v value) { c.Other = v.text }}
}

func optional(f field) field {
	f.need = false
	return f
}

func amount(name, doc string) field {
	return field{name: name, doc: doc, is: positive, set: func(c *guard.Condition, v value) { c.Amount = v.number }}
}

func limited(name, doc string) field {
	return field{name: name, doc: doc, is: positive, set: func(c *guard.Condition, v value) { c.Limit = v.number }}
}

func compared(name string, is guard.Relation) field {
	return field{name: name, doc: "The number of which the counter is " + string(is) + ".", is: integer, choice: true,
		set: func(c *guard.Condition, v value) { c.Is, c.Amount = is, v.number }}
}

var exists = field{name: "exists", doc: "Whether the key has to exist.", is: boolean, choice: true,
	set: func(c *guard.Condition, v value) {
		if c.Is = guard.Absent; v.truth {
			c.Is = guard.Exists
		}
	}}

var valued = field{name: "equals", doc: "The value of the key.", is: anyText, choice: true,
	set: func(c *guard.Condition, v value) { c.Is, c.Other = guard.Equal, v.text }}

var windowFields = []field{
	{name: "from", doc: "The time of the day at which it begins.", is: clock, need: true,
		set: func(c *guard.Condition, v value) { c.Window.From = v.duration }},
	{name: "to", doc: "The time of the day at which it ends; before from: on the next day; equal: the whole day.", is: clock, need: true,
		set: func(c *guard.Condition, v value) { c.Window.To = v.duration }},
	{name: "days", doc: "The days on which it begins; every day if they are left out.", is: weekdays,
		set: func(c *guard.Condition, v value) { c.Window.Days = v.days }},
	{name: "offset", doc: "How far the clock that is meant is east of UTC; 0 if it is left out.", is: offset,
		set: func(c *guard.Condition, v value) { c.Window.Offset = v.duration }},
}

// brief: the main field alone will do.
func (k *kind) brief() bool {
	for _, f := range k.fields[1:] {
		if f.need {
			return false
		}
	}
	return !k.choose
}

func (k *kind) fieldNames() (names []string) {
	for _, f := range k.fields {
		names = append(names, f.name)
	}
	return names
}

// kindOf is the row of a leaf, or nil.
func kindOf(text string) *kind {
	for i := range kinds {
		if string(kinds[i].kind) == text {
			return &kinds[i]
		}
	}
	return nil
}

// kindNames are the keys that a condition can have.
func kindNames() []string {
	names := []string{string(guard.KindAll), string(guard.KindAny), string(guard.KindNot)}
	for _, k := range kinds {
		names = append(names, string(k.kind))
	}
	return names
}
