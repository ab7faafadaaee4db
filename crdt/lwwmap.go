package crdt

import (
	"bytes"
	"maps"
	"slices"
)

// Map keeps, for each key, what was written last. The zero value is empty. A deleted
// key leaves its stamp until [Map.Prune].
type Map struct{ entries map[string]entry }

type entry struct {
	Register
	gone bool
}

// Set writes a key and returns the delta for the others; see [Register.Set].
func (m *Map) Set(key string, value []byte, s Stamp) Map {
	return m.write(key, entry{Register: Register{bytes.Clone(value), s}})
}

// Delete deletes a key and returns the delta for the others.
func (m *Map) Delete(key string, s Stamp) Map {
	return m.write(key, entry{Register: Register{stamp: s}, gone: true})
}

func (m *Map) write(key string, e entry) Map {
	if e.stamp == (Stamp{}) {
		return Map{}
	}
	d := Map{map[string]entry{key: e}}
	m.Merge(d)
	return d
}

// Get returns the value of a key; false: there is none.
func (m *Map) Get(key string) ([]byte, bool) {
	e, ok := m.entries[key]
	return e.value, ok && !e.gone
}

// Keys are the keys that have a value, in order.
func (m *Map) Keys() []string {
	var keys []string
	for k, e := range m.entries {
		if !e.gone {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Merge joins what another node knows and reports whether anything was later.
func (m *Map) Merge(o Map) (changed bool) {
	for k, e := range o.entries {
		if old, ok := m.entries[k]; ok && !e.after(&old) {
			continue
		}
		if m.entries == nil {
			m.entries = map[string]entry{}
		}
		m.entries[k] = e
		changed = true
	}
	return changed
}

func (e *entry) after(o *entry) bool {
	if c := e.stamp.Compare(o.stamp); c != 0 {
		return c > 0
	}
	if e.gone != o.gone {
		return e.gone
	}
	return e.Register.after(&o.Register)
}

// Latest is the latest stamp in the map, for [Clock.Observe].
func (m *Map) Latest() (latest Stamp) {
	for _, e := range m.entries {
		if e.stamp.Compare(latest) > 0 {
			latest = e.stamp
		}
	}
	return latest
}

// Prune forgets keys that were deleted before t. A write older than that, from a
// node which has not been heard since, would bring the key back: prune what is older
// than the longest absence.
func (m *Map) Prune(t Time) {
	maps.DeleteFunc(m.entries, func(_ string, e entry) bool { return e.gone && e.stamp.At < t })
}

// State is the whole map as a delta.
func (m *Map) State() Map { return Map{maps.Clone(m.entries)} }
