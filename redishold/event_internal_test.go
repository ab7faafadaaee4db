package redishold

import (
	"strings"
	"testing"
)

// row writes fields as the scripts do.
func row(fields ...string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(withLength(f))
	}
	return b.String()
}

func withLength(f string) string {
	const digits = "0123456789"
	n, length := len(f), ""
	for ; n > 0 || length == ""; n /= 10 {
		length = string(digits[n%10]) + length
	}
	return length + ":" + f
}

func TestDecode(t *testing.T) {
	put := []string{"7", "kv", "put", "k:\x00\xff", "0", "", "0", "0", "", "", "", "0", "1", "k:\x00\xff", "v", "7", "7", "1", "", "0"}
	lock := []string{"8", "lock", "acquired", "m", "8", "who", "0", "1", strings.Repeat("ab", 16), "", "", "0", "0"}
	m, err := decode(row(append(append([]string{"7", "8"}, put...), lock...)...))
	if err != nil || m.first != 7 || m.last != 8 || len(m.events) != 2 {
		t.Fatalf("%+v %v", m, err)
	}
	if e := m.events[0]; e.Name != "k:\x00\xff" || e.KV == nil || string(e.KV.Value) != "v" || e.Prev != nil {
		t.Errorf("the put is %+v", e)
	}
	if e := m.events[1]; e.Token != 8 || e.Owner != "who" || e.Session[0] != 0xab || e.Ordinal != 0 {
		t.Errorf("the grant is %+v", e)
	}
	for _, bad := range []string{"", "x", "1:", "2:1", "-1:", row("7"), row("8", "7"), row("7", "8", "7", "kv")} {
		if _, err := decode(bad); err == nil {
			t.Errorf("%q was decoded", bad)
		}
	}
}

// FuzzDecode: whatever is published, decode returns, and what it returns covers
// a range of revisions.
func FuzzDecode(f *testing.F) {
	f.Add("")
	f.Add(row("7", "7", "7", "counter", "changed", "c", "0", "", "1", "0", "", "", "", "-9223372036854775808", "0"))
	f.Add(row("7", "7", "7", "kv", "put", "k", "0", "", "0", "0", "", "", "", "0", "1", "k", "v", "7", "7", "1", "", "0"))
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := decode(text); err == nil && (m.first == 0 || m.last < m.first) {
			t.Errorf("%q covers %d to %d", text, m.first, m.last)
		}
	})
}

// TestSteps: a change of any size is the sum of steps that INCRBY can take.
func TestSteps(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 5: "5", 1<<63 - 1: "9223372036854775807", 1 << 63: "9223372036854775807 1",
		1<<64 - 1: "9223372036854775807 9223372036854775807 1",
	} {
		if got := strings.Join(steps(n, false), " "); got != want {
			t.Errorf("%d: %s; want %s", n, got, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	o, err := (*Options)(nil).settled()
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 30e9 // the default of package holdfast
	if got := o.extension(ttl).String() + " " + (ttl - o.slack(ttl)).String() + " " + o.BusyWaitMin.String() + " " + o.BusyWaitMax.String(); got != "10s 27s 10ms 200ms" {
		t.Errorf("extension, minimum validity and busy wait are %s", got)
	}
	if o.Prefix != "holdfast" || o.MaxName != 512 {
		t.Errorf("prefix and longest name are %q and %d", o.Prefix, o.MaxName)
	}
}
