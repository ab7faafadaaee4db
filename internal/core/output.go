package core

// Output collects what Apply puts out. Send the replies of an entry before its
// pushes: a push may take back what a reply of the same entry gave.
//
// Everything in it stays valid until Reset, except that results and events
// share strings and byte slices with the machine, which nobody may change.
type Output struct {
	Replies []Reply // one a frame, in order
	Renewed []Renewed
	Pushes  []Push
	Events  []Event
}

// Reset empties o and keeps its memory.
func (o *Output) Reset() {
	o.Replies = o.Replies[:0]
	o.Renewed = o.Renewed[:0]
	o.Pushes = o.Pushes[:0]
	o.Events = o.Events[:0]
}
