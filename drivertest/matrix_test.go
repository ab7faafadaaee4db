package drivertest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
)

// rowFeatures are the features behind the rows of the table in docs/backends.md.
var rowFeatures = map[string][]driver.Feature{
	"mutex, try, wait, cancel, token, inspect":             {driver.FeatureFencing},
	"reader-writer locks, weighted semaphores":             {driver.FeatureShared, driver.FeatureWeighted},
	"upgrade, max-hold, min-hold, delay, reclaim policies": {driver.FeatureUpgrade, driver.FeatureMaxHold, driver.FeatureMinHold, driver.FeatureDelay, driver.FeatureReclaim},
	"resize of a semaphore":                                {driver.FeatureResize},
	"force release":                                        {driver.FeatureForce},
	"first come, first served over processes":              {driver.FeatureFIFO},
	"lost before re-granted":                               {driver.FeatureLostFirst},
	"several names":                                        {driver.FeatureAll},
	"counters, sequences, keys":                            {driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV},
	"transactions over several keys":                       {driver.FeatureTxn},
	"watch":                                                {driver.FeatureWatch},
	"events `denied`, `queued`, `stale`, `reclaimed`":      {}, // no feature of their own: what tells them has those above
	"elections, latches, barriers, sessions":               {driver.FeatureElection, driver.FeatureLatch, driver.FeatureSession},
	"survives a restart of the engine":                     {driver.FeatureDurable},
	"many machines":                                        {driver.FeatureManyMachines},
	"what idle names leave can be swept":                   {driver.FeatureSweep},
	"rate limits":                                          {driver.FeatureLimit},
}

// cellSays is what a cell that is neither a tick nor a dash says of a scheme.
func cellSays(cell, scheme string) (has bool, more []driver.Feature) {
	switch cell {
	case "✓", "in order", "from now":
		return true, nil
	case "in one step":
		return true, []driver.Feature{driver.FeatureAtomicAll}
	case "history":
		return true, []driver.Feature{driver.FeatureHistory}
	case "all but `mem:`":
		return scheme != "mem", nil
	case "`holdfast:`":
		return scheme == "holdfast", nil
	}
	return false, nil // a dash, or under some condition only
}

// Every cell of the table says what the suite demands.
func TestTableOfBackends(t *testing.T) {
	data, err := os.ReadFile("../docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n| | ")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	says := map[string][]driver.Feature{}
	columns := cells("| | " + lines[0])[1:]
	rows := 0
	for _, line := range lines[2:] {
		row := cells(line)
		features, known := rowFeatures[row[0]]
		if !known || len(row) != len(columns)+1 {
			t.Errorf("the row %q has no features in this test, or %d cells", row[0], len(row))
			continue
		}
		rows++
		for i, column := range columns {
			for scheme := range strings.SplitSeq(column, ", ") {
				scheme = strings.Trim(scheme, "`:")
				if has, more := cellSays(row[i+1], scheme); has {
					says[scheme] = slices.Concat(says[scheme], features, more)
				}
			}
		}
	}
	if rows != len(rowFeatures) || len(says) != 7 {
		t.Errorf("%d rows of %d, %d schemes", rows, len(rowFeatures), len(says))
	}
	for scheme, said := range says {
		demanded := drivertest.Required(scheme)
		slices.Sort(demanded)
		slices.Sort(said)
		if !slices.Equal(said, demanded) {
			t.Errorf("%s: the table says %q, the suite demands %q", scheme, said, demanded)
		}
	}
}

// cells are those of a line of a table.
func cells(line string) (found []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		found = append(found, strings.TrimSpace(cell))
	}
	return found
}
