package filehold

import "testing"

// What begins by itself beside a Close does not keep open what the Close has ended.
func TestRefUsed(t *testing.T) {
	e := &engine{}
	if e.refUsed() || e.refs != 0 {
		t.Errorf("an engine without users is used again: %d", e.refs)
	}
	e.ref()
	if !e.refUsed() || e.refs != 2 {
		t.Errorf("an engine with a user is not: %d", e.refs)
	}
}
