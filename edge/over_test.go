package edge

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// The limit that docs/limits.md measures: 1,000 in 10 s, and for a bucket a burst of
// what refills in a second.
const (
	overCount = 1000
	overPer   = 10 * time.Second
	overRate  = overCount / int64(overPer/time.Second)
	overDelay = 50 * time.Millisecond
)

var overNodes = flag.Int("edge.nodes", 10, "how many nodes TestOverAdmission has at most; docs/limits.md has 50, and above 10 TestLongRun has more cases")

func overSizes() []int {
	return slices.DeleteFunc([]int{3, 10, 50}, func(n int) bool { return n > *overNodes })
}

// overCase is nodes that start together and are offered load times the rate, evenly.
type overCase struct {
	nodes int
	sync  time.Duration
	load  int64
	most  int // Config.MaxIncoming
}

// apart is the time between two flushes: whole ones of sync, and as many as let each node
// receive no more than it is to.
func (c overCase) apart() time.Duration {
	d := c.sync
	for c.most > 0 && d < time.Duration(c.nodes-1)*time.Second/time.Duration(c.most) {
		d += c.sync
	}
	return d
}

// formula is the most that a window can have: the limit, and what all nodes but one are
// offered while they do not hear of each other.
func (c overCase) formula() int64 {
	blind := c.apart() + overDelay + overStep
	each := (c.load*overRate*int64(blind) + int64(c.nodes)*int64(time.Second) - 1) / (int64(c.nodes) * int64(time.Second))
	return min(overCount+int64(c.nodes-1)*(each+1), int64(c.nodes)*overCount)
}

// overStep is the time between two rounds of requests.
const overStep = 10 * time.Millisecond

// admitted counts what was admitted by algorithm, in each step.
type admitted [2][]int64

// run offers load for a time; cut: nodes hear nothing of each other.
func (c overCase) run(t *testing.T, length time.Duration, localCap int64, cut bool) (got admitted) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{MaxDelay: overDelay})
		var names []string
		var limiters [][2]*Limiter
		for i := range c.nodes {
			names = append(names, fmt.Sprint(i))
			n := open(t, Config{Actor: names[i], Link: hub.Link(names[i]), Flush: c.sync, State: time.Hour, MaxIncoming: c.most})
			window := limit.Rate{Count: overCount, Per: overPer, Algorithm: limit.FixedWindow}
			bucket := limit.Rate{Count: overCount, Per: overPer, Burst: overRate}
			var both [2]*Limiter
			for k, rate := range []limit.Rate{window, bucket} {
				l, err := n.Limiter(fmt.Sprint(k), LimiterConfig{Rate: rate, LocalCap: localCap})
				if err != nil {
					t.Fatal(err)
				}
				both[k] = l
			}
			limiters = append(limiters, both)
		}
		if cut {
			hub.Split(names...)
		}
		time.Sleep(overPer - time.Duration(time.Now().UnixNano())%overPer + overStep/3)
		perStep := c.load * overRate * int64(overStep) / int64(time.Second)
		for step := range int64(length / overStep) {
			var sum [2]int64
			for i := range perStep {
				both := limiters[(step*perStep+i)%int64(c.nodes)]
				for k, l := range both {
					if take(t, l, "k", 1).Allowed {
						sum[k]++
					}
				}
			}
			got[0], got[1] = append(got[0], sum[0]), append(got[1], sum[1])
			time.Sleep(overStep)
		}
	})
	return got
}

// windows is the most of any window of the limiter's own.
func windows(steps []int64) (most int64) {
	per := int(overPer / overStep)
	for i := 0; i+per <= len(steps); i += per {
		sum := int64(0)
		for _, n := range steps[i : i+per] {
			sum += n
		}
		most = max(most, sum)
	}
	return most
}

func sumOf(steps []int64) (sum int64) {
	for _, n := range steps {
		sum += n
	}
	return sum
}

// overTable is that of docs/limits.md.
func overTable(t *testing.T) (rows []string) {
	for _, nodes := range overSizes() {
		for _, sync := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
			for _, load := range []int64{2, 10} {
				c := overCase{nodes, sync, load, -1}
				length := 2 * overPer
				if sync < time.Second {
					length = overPer // many messages, and windows that are all alike
				}
				got := c.run(t, length, 0, false)
				worst, bucket := windows(got[0]), windows(got[1])
				if worst > c.formula() {
					t.Errorf("%+v: a window has %d, above the formula's %d", c, worst, c.formula())
				}
				if most := c.formula() + overRate; bucket > most { // a burst more than a window
					t.Errorf("%+v: a bucket admitted %d in 10 s, above %d", c, bucket, most)
				}
				if worst < overCount {
					t.Errorf("%+v: a window has %d only", c, worst)
				}
				rows = append(rows, fmt.Sprintf("| %d | %s | %d× | %.2f | %.2f | %.2f |", nodes, sync, load, ratio(worst), ratio(c.formula()), ratio(bucket)))
			}
		}
	}
	return rows
}

func ratio(n int64) float64 { return float64(n) / overCount }

// TestOverAdmission: what nodes admit too much is at most what the formula says, and
// docs/limits.md tells what was measured.
func TestOverAdmission(t *testing.T) {
	rows := overTable(t)
	for _, nodes := range overSizes() {
		c := overCase{nodes, time.Second, 100, -1}
		alone, capped := c.run(t, overPer, 0, true), c.run(t, overPer, 2*overCount/int64(nodes), true)
		a, b := windows(alone[0]), windows(capped[0])
		if a > int64(nodes)*overCount || b > 2*overCount {
			t.Errorf("%d nodes apart admit %d, with a cap %d", nodes, a, b)
		}
		rows = append(rows, fmt.Sprintf("| %d | %.2f | %.2f |", nodes, ratio(a), ratio(b)))
	}
	doc, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !told(string(doc), row) {
			t.Errorf("docs/limits.md does not tell\n%s", row)
		}
	}
}

// TestOverAdmissionOfMany: nodes that flush less often since there are many admit at most what
// the formula says of the time between two flushes that they have then.
func TestOverAdmissionOfMany(t *testing.T) {
	c := overCase{nodes: 10, sync: 100 * time.Millisecond, load: 10, most: 25}
	if c.apart() != 400*time.Millisecond {
		t.Fatalf("they flush every %s", c.apart())
	}
	often := c
	often.most = -1
	got := windows(c.run(t, overPer, 0, false)[0])
	if got > c.formula() || got <= windows(often.run(t, overPer, 0, false)[0]) {
		t.Errorf("a window has %d; the formula allows %d", got, c.formula())
	}
}

// told reports that the document has the row, with figures that differ by a tenth at
// most, the bucket's by a fifth: what happens at one moment does so in any order.
func told(doc, row string) bool {
	cells := strings.Split(row, " | ")
	head := 1
	if len(cells) > 3 {
		head = 3
	}
	for line := range strings.Lines(doc) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), strings.Join(cells[:head], " | ")+" | ")
		if figures := strings.Split(rest, " | "); ok && near(figures, cells[head:]) {
			return true
		}
	}
	return false
}

func near(figures, measured []string) bool {
	if len(figures) != len(measured) {
		return false
	}
	for i, text := range figures {
		was, err := strconv.ParseFloat(strings.TrimSuffix(text, " |"), 64)
		is, fails := strconv.ParseFloat(strings.TrimSuffix(measured[i], " |"), 64)
		apart := 1.1
		if i == 2 {
			apart = 1.2
		}
		if err != nil || fails != nil || was > apart*is || is > apart*was {
			return false
		}
	}
	return true
}

// TestLongRun: in the long run a bucket stays near its rate, whatever is offered, if nodes flush
// at least as often as its burst lasts; else it may lose a little more than a tenth.
func TestLongRun(t *testing.T) {
	cases := []overCase{{3, time.Second, 2, -1}, {10, 5 * time.Second, 10, -1}, {10, 5 * time.Second, 2, -1}}
	if *overNodes > 10 {
		cases = append(cases, overCase{10, time.Second, 10, -1}, overCase{50, time.Second, 2, -1}, overCase{50, 5 * time.Second, 2, -1})
	}
	for _, c := range cases {
		const length = 5 * time.Minute
		got := c.run(t, length, 0, false)
		average := float64(sumOf(got[1])-overRate) / float64(overRate*int64(length/time.Second))
		t.Logf("proof: edge: a bucket of %d nodes that start together, flush %s, %d times the rate: %.3f of it over %s", c.nodes, c.sync, c.load, average, length)
		least := 0.9
		if c.sync > overPer*time.Duration(overRate)/overCount { // its burst lasts for less
			least = 0.85
		}
		if average < least || average > 1.1 {
			t.Errorf("%+v: %.3f of the rate", c, average)
		}
	}
}
