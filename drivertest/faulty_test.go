package drivertest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/drivertest"
)

// faults names for every case that a driver can break a fault of the toy that
// breaks what the case promises. Cases that package holdfast decides alone have
// their bugs in ../planted/drivertest.txt.
var faults = map[string]string{
	"Features/Matrix":     "declares too little",
	"Features/Require":    "clients differ",
	"Features/SameForAll": "clients differ",
	"Features/Wrapper":    "wrapping hides",

	"Mutex/AcquireRelease":      "release forgets",
	"Mutex/OneAtATime":          "try always wins",
	"Mutex/OverClients":         "clients are islands",
	"Mutex/Crowd":               "nobody waits",
	"Mutex/SpaceIsNoHolder":     "session joins",
	"Mutex/NotReentrant":        "session joins",
	"Mutex/Reentrant":           "release forgets",
	"Mutex/OwnerDecidesNothing": "owner joins",
	"Mutex/TryTellsHolder":      "wrong holder",
	"Mutex/TryTellsDeadline":    "no deadline told",
	"Mutex/TryTellsQueue":       "no queue told",
	"Mutex/TryLeavesNothing":    "try queues",
	"Mutex/WaitIsServed":        "grant forgotten",
	"Token/GrowsWithEveryGrant": "token repeats",
	"Token/GrowsInTheQueue":     "token repeats",
	"Token/OutlivesClients":     "token restarts",
	"Token/FitsEverywhere":      "token too great",

	"Queue/OrderOfArrival":           "last come first",
	"Queue/OrderInOneClient":         "last come first",
	"Queue/OnWaitTellsPlace":         "wrong place",
	"Queue/FreeNeverWaits":           "always told to wait",
	"Queue/CancelReturnsAtOnce":      "deaf to cancel",
	"Queue/DeadlineReturnsAtOnce":    "wrong error on cancel",
	"Queue/DeadlineOnItsWay":         "unavailable past the deadline",
	"Queue/CancelLeaves":             "cancel forgets",
	"Queue/CancelMeetsGrant":         "cancel forgets",
	"Queue/CloseLeaves":              "close forgets",
	"Queue/ContextBoundsOnlyTheWait": "context ends the hold",

	"Names/CaseCounts":   "folds case",
	"Names/EveryText":    "cleans names",
	"Names/Longest":      "cuts names",
	"Names/Bad":          "long names",
	"Names/Sub":          "last element only",
	"Names/OneKind":      "kinds mix",
	"Names/KeysAreApart": "keys are names",

	"Hold/ErrTellsExactly":     "lost at once",
	"Hold/DeadlineWithinTTL":   "deadline too late",
	"Hold/IsRenewed":           "never renews",
	"Hold/ReleaseTwice":        "release hits the next",
	"Hold/ReleaseAtOnceByMany": "release hits the next",
	"Hold/ReleaseAfterCancel":  "release needs its context",
	"Hold/Abandoned":           "release forgets",
	"Hold/ReleaseIsBounded":    "deaf release",
	"Hold/ManualRenew":         "keep forgets",
	"Hold/RenewOnlyForward":    "keep moves back",

	"Do/ReleasesOnReturn": "release forgets",
	"Do/ReturnsTheError":  "release forgets",
	"Do/ReleasesOnPanic":  "release forgets",
	"Do/ReleasesOnGoexit": "release forgets",
	"Do/TryRunsNothing":   "try always wins",
	"Do/LossIsTold":       "loss untold",
	"Do/ParentEnds":       "release forgets",

	"Panic/OnWait":  "cancel forgets",
	"Panic/Outcome": "release forgets",
	"Panic/End":     "release forgets",

	"RWMutex/ReadersShare":         "readers exclude",
	"RWMutex/WriterIsAlone":        "writers share",
	"RWMutex/ReadersKeepWriterOut": "writers share",
	"RWMutex/Crowd":                "writers share",
	"RWMutex/WriterIsNotStarved":   "readers overtake",
	"RWMutex/ReadersWakeTogether":  "wakes one",
	"RWMutex/ServedInOrder":        "last come first",
	"RWMutex/CancelledWriter":      "cancel forgets",
	"RWMutex/EveryGrantHasAToken":  "token repeats",
	"RWMutex/TryTellsReaders":      "one holder told",
	"RWMutex/Do":                   "readers exclude",

	"Upgrade/OnlyReader":        "upgrade keeps the token",
	"Upgrade/WaitsForReaders":   "upgrade waits for nobody",
	"Upgrade/GoesFirst":         "upgrade queues",
	"Upgrade/SecondIsDeadlock":  "second upgrader waits",
	"Upgrade/CancelKeepsReader": "cancelled upgrade drops",
	"Upgrade/Downgrade":         "downgrade takes a token",

	"Semaphore/Weights":                    "weight ignored",
	"Semaphore/Drain":                      "limit off by one",
	"Semaphore/Crowd":                      "weight ignored",
	"Semaphore/LimitDiffers":               "limit differs quietly",
	"Semaphore/LimitOfItsOwn":              "makes itself",
	"Semaphore/TooHeavy":                   "heavy waits",
	"Semaphore/HeadBlocks":                 "light ones overtake",
	"Semaphore/WakesAllThatFit":            "wakes one",
	"Semaphore/LargeCounts":                "weights in 16 bits",
	"Semaphore/TokensTellApart":            "token repeats",
	"Semaphore/LimitOutlivesHolders":       "limit differs quietly",
	"Semaphore/DeleteIdleOnly":             "deletes what is used",
	"Semaphore/Grow":                       "resize forgets",
	"Semaphore/Shrink":                     "a lower limit frees",
	"Semaphore/ShrinkRefusesTheImpossible": "impossible waits",
	"Semaphore/ResizeUnknown":              "resize makes",

	"All/Holds":                       "takes the first only",
	"All/TryTakesAllOrNothing":        "keeps what it got",
	"All/WaitsForEveryName":           "takes the first only",
	"All/MixedKinds":                  "weight ignored",
	"All/CancelTakesNothing":          "cancel forgets",
	"All/TokenOf":                     "token repeats",
	"All/OneToken":                    "a token a name",
	"All/OrderDoesNotMatter":          "takes in the order given",
	"All/WaitingKeepsFreeNamesUsable": "reserves early",

	"Loss/IsKnownInTime":        "deadline too late",
	"Loss/NextIsGranted":        "sessions never end",
	"Loss/IsKnownFirst":         "deadline too late",
	"Loss/ReleaseFreesNobody":   "expiry frees twice",
	"Loss/IsForEver":            "the dead are renewed",
	"Loss/TakesAllOfTheSession": "only the first is lost",
	"Loss/StoppedWaiter":        "dead waiters stay",
	"MaxHold/EndsTheLiving":     "max-hold ignored",
	"MaxHold/IsKnownFirst":      "max-hold untold",
	"MaxHold/Extend":            "extend forgets",
	"MaxHold/ExtendOnlyForward": "extend moves back",
	"MinHold/StaysTaken":        "min-hold ignored",
	"Delay/AfterALoss":          "delay ignored",
	"Delay/NotRenewed":          "delay ignored",
	"Delay/Stalled":             "delay ignored",
	"Delay/ThenClosed":          "delay ignored",
	"Delay/NotAfterARelease":    "delay always",
	"Force/EndsTheHold":         "loss untold",
	"Force/IsKnownFirst":        "forced untold",
	"Force/NeedsTheToken":       "force by name",
	"Force/ReleaseConfirms":     "revoked until its deadline",
	"Force/Now":                 "now is later",
	"Force/Nobody":              "force by name",

	"Session/EndsWithoutKeep": "sessions never end",
	"Session/Keep":            "keep forgets",
	"Session/RenewsItself":    "never renews",
	"Session/TimeToLive":      "keep forgets",
	"Session/RevokeFreesAll":  "session keys stay",
	"Session/Info":            "no waits told",
	"Session/OnItsOwn":        "revoke ends all of the client",
	"Session/ClosedClient":    "close forgets",

	"Reclaim/Never":    "policies ignored",
	"Reclaim/OnDemand": "never reclaims",

	"Election/Campaign":           "value untold",
	"Election/OneLeader":          "try always wins",
	"Election/Nobody":             "release forgets",
	"Election/Proclaim":           "proclaim forgets",
	"Election/HandOver":           "hands over to the next",
	"Election/HandOverToNobody":   "hands over to anybody",
	"Election/Observe":            "proclaim untold",
	"Election/ObserveEnds":        "deaf watch",
	"Election/LeadReturns":        "release forgets",
	"Election/LeadCampaignsAgain": "loss untold",

	"Latch/OpensAtZero":             "latch opens early",
	"Latch/StaysOpen":               "latch closes again",
	"Latch/CountsExactly":           "counts get lost",
	"Latch/MustExist":               "makes itself",
	"Latch/WaitIsBounded":           "deaf to cancel",
	"Latch/Delete":                  "delete forgets",
	"Barrier/AllOrNobody":           "barrier early",
	"Barrier/ServesAgain":           "barrier stays open",
	"Barrier/WhoLeavesDoesNotCount": "cancel forgets",
	"Barrier/LeavesOrPasses":        "cancel forgets",
	"Barrier/PartiesDiffer":         "limit differs quietly",
	"Barrier/DeleteIdleOnly":        "deletes what is used",

	"Counter/AddAndLoad":            "add forgets",
	"Counter/Store":                 "store adds",
	"Counter/CountsExactly":         "adds get lost",
	"Counter/CompareAndSwap":        "always swaps",
	"Counter/SwapOfZero":            "zero is absent",
	"Counter/OneSwapWins":           "always swaps",
	"Counter/SignedSaturates":       "wraps",
	"Counter/UnsignedSaturates":     "wraps",
	"Counter/SubOfAll":              "subtracts no zero",
	"Counter/OneSign":               "signs mix",
	"Counter/Delete":                "delete forgets",
	"Buffered/FlushesAtThreshold":   "add forgets",
	"Buffered/FlushesAfterInterval": "add forgets",
	"Buffered/CountsExactly":        "adds get lost",
	"Buffered/PutsBack":             "cut too late",

	"Sequence/CountsUp":      "skips a number",
	"Sequence/Start":         "start ignored",
	"Sequence/NoNumberTwice": "numbers repeat",
	"Sequence/Reserve":       "numbers repeat",
	"Sequence/Current":       "current takes",
	"Sequence/NeverWraps":    "wraps",
	"Sequence/Delete":        "delete forgets",

	"Limiter/Burst":            "limiter allows one more",
	"Limiter/Refills":          "limiter never refills",
	"Limiter/KeysAreApart":     "limiter keys mix",
	"Limiter/OverClients":      "clients are islands",
	"Limiter/CountsExactly":    "limiter loses takes",
	"Limiter/CostsAreWhole":    "limiter takes what is left",
	"Limiter/PeekTakesNothing": "peek takes",
	"Limiter/CancelGivesBack":  "settle forgets",
	"Limiter/Debt":             "settle forgets",
	"Limiter/RateDiffers":      "rate differs quietly",
	"Limiter/RateOfItsOwn":     "limiter makes itself",
	"Limiter/SetRate":          "set rate keeps keys",
	"Limiter/Reset":            "reset forgets",
	"Limiter/ResetForgets":     "what was reset is given back",
	"Limiter/SetRateForgets":   "an old rate gives back",
	"Limiter/Delete":           "delete forgets",
	"Limiter/StaysDeleted":     "peek makes",
	"Limiter/Algorithms":       "one algorithm",
	"Limiter/Waits":            "limiter never waits",
	"Limiter/WaitsInOrder":     "limiter never waits",
	"Limiter/WaitLeaves":       "settle forgets",
	"Limiter/WaitIsTold":       "reset forgets",
	"Limiter/Exact":            "blocks are ordinary",
	"Limiter/EveryWindow":      "limiter refills too fast",
	"Limiter/Leased":           "limiter refills too fast",
	"Limiter/Changed":          "decisions are told",

	"KV/PutAndGet":               "put forgets",
	"KV/EveryValue":              "values are text",
	"KV/Absent":                  "delete keeps",
	"KV/Versions":                "versions stand still",
	"KV/Create":                  "always swaps",
	"KV/CompareAndSwap":          "always swaps",
	"KV/CompareAndSwapOfNothing": "revisions restart",
	"KV/OneSwapWins":             "always swaps",
	"KV/CompareAndDelete":        "always swaps",
	"KV/Delete":                  "deletes blindly",
	"KV/Expire":                  "never expires",
	"KV/PutEndsExpire":           "expire sticks",
	"KV/SessionKey":              "session keys stay",
	"Range/Prefix":               "prefix ignored",
	"Range/Limit":                "limit ignored",
	"Range/Orders":               "one order",
	"Range/KeysOnly":             "values anyway",
	"Range/ManyKeys":             "cut looks complete",
	"Range/Pages":                "a key repeats",
	"Range/After":                "after has to exist",
	"Range/WhileOthersChange":    "a key skipped",
	"Range/Counted":              "counts the page",
	"Range/SortedIsWhole":        "sorted is cut",
	"Txn/GetsAreWhole":           "gets look absent",
	"Txn/PreviousIsWhole":        "previous cut",
	"Txn/AllConditions":          "last condition decides",
	"Txn/Conditions":             "less or equal",
	"Txn/PrefixCondition":        "prefix asks one key",
	"Txn/OneRevision":            "a revision an operation",
	"Txn/NobodySeesHalf":         "half done",
	"Txn/SeesItself":             "reads the past",
	"Txn/DeleteRange":            "deletes one",
	"KV/DeleteRange":             "a page is all",

	"Watch/ReadyFirst":          "no ready",
	"Watch/Keys":                "events without values",
	"Watch/Locks":               "locks untold",
	"Watch/Semaphores":          "weight ignored",
	"Watch/NothingMissing":      "drops events",
	"Watch/MixedOrder":          "locks told late",
	"Watch/Prefix":              "prefix ignored",
	"Watch/Patterns":            "patterns ignored",
	"Watch/Glob":                "glob ignored",
	"Watch/Previous":            "no previous",
	"Watch/EndsWithContext":     "deaf watch",
	"Watch/SlowReader":          "silent gap",
	"Watch/Several":             "one watcher",
	"History/FromRevision":      "from exclusive",
	"History/ResumesWithoutGap": "from exclusive",
	"History/Compacted":         "silent gap",

	"Inspect/Holder":         "wrong holder",
	"Inspect/Free":           "remembers holders",
	"Inspect/Several":        "wrong holder",
	"Inspect/Waiters":        "no queue told",
	"Inspect/Semaphore":      "used untold",
	"Inspect/GreatSemaphore": "great limits untold",
	"Inspect/Latch":          "great limits untold",
	"Inspect/Readers":        "modes untold",
	"List/Names":             "prefix ignored",
	"List/ManyNames":         "one page",
	"List/Pages":             "names repeat",

	"Inspect/ManyHolders": "claims cut",
	"Inspect/ManyWaiters": "a claim skipped",
	"Session/ManyThings":  "session cut",

	"Sweep/HeldStays":    "sweeps what is held",
	"Sweep/TokensGrow":   "sweep restarts tokens",
	"Sweep/DataStays":    "sweeps data",
	"Sweep/BesideOthers": "sweeps what is held",
	"Sweep/Limits":       "sweeps no limits",
	"Sweep/ContextEnds":  "deaf sweep",

	"Space/Ping":              "ping fails",
	"Space/PingWhileGone":     "deaf to cancel",
	"Space/CloseEndsHolds":    "close forgets",
	"Space/CloseLeavesOthers": "close ends all",
	"Space/ShutdownGivesUp":   "close forgets",

	"Errors/HeldSaysByWhom":     "wrong holder",
	"Errors/HeldTellsAsInspect": "refused without a kind",
	"Errors/BadOptions":         "options ignored",
	"Errors/LostSaysWhy":        "lost without a reason",
}

// faultOf is the fault that a case has to find.
func faultOf(c drivertest.Case) string {
	if c.Lacks != "" {
		return "hides " + string(c.Lacks)
	}
	return faults[c.Name]
}

// Every case is run against a toy with a fault and has to fail, with its
// promise in the text.
func TestEveryCaseFindsItsFault(t *testing.T) {
	inLibrary := planted(t)
	for _, c := range drivertest.Cases() {
		fault := faultOf(c)
		if fault == "" {
			if !inLibrary[c.Name] {
				t.Errorf("no fault is planted for %s, neither in the toy nor in ../planted/drivertest.txt", c.Name)
			}
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			h, answer := toys(fault), make(chan error)
			h.Timeout = patience(c)
			h.Select = func(o drivertest.Case) bool { return o.Name == c.Name }
			go func() { answer <- chances(t.Context(), h) }()
			t.Parallel()
			err := <-answer
			f, ok := errors.AsType[*drivertest.Failure](err)
			if !ok || f.Case != c.Name || !strings.Contains(err.Error(), c.Promise) {
				t.Errorf("with the fault %q it answers %v", fault, err)
			}
		})
	}
}

// TestMoreFaultsOfLimiters: cases that promise more than one thing find a fault of each.
func TestMoreFaultsOfLimiters(t *testing.T) {
	for fault, name := range map[string]string{"windows lose takes": "Limiter/CountsExactly", "limiter gives a tenth": "Limiter/Leased"} {
		h := toys(fault)
		h.Select = func(c drivertest.Case) bool { return c.Name == name }
		if err := drivertest.Check(t.Context(), h, ignore); err == nil || !strings.Contains(err.Error(), "are allowed") && !strings.Contains(err.Error(), "were allowed") {
			t.Errorf("%s: %v", fault, err)
		}
	}
}

// TestLeasedWhileTheBackendIsAway: clients by blocks live with a backend that is away at times, and not with one that always is.
func TestLeasedWhileTheBackendIsAway(t *testing.T) {
	for fault, passes := range map[string]bool{"limiter is away at times": true, "limiter is away": false} {
		h := toys(fault)
		h.Select = func(c drivertest.Case) bool { return c.Name == "Limiter/Leased" }
		if err := drivertest.Check(t.Context(), h, ignore); (err == nil) != passes {
			t.Errorf("%s: %v", fault, err)
		}
	}
}

// planted are the cases for which ../planted/drivertest.txt has a bug of package
// holdfast. Each entry has to run its case, and to say what the case sees.
func planted(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../planted/drivertest.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, entry := range strings.Split(string(text), "\n=== ")[1:] {
		name, _, _ := strings.Cut(entry, ":")
		run := "hold -run ^TestConformance$/^" + strings.Replace(name, "/", "$/^", 1) + "$\n" // of memhold, or filehold for what only a backend without TTL refuses
		if !strings.Contains(entry, "\ntest: ./mem"+run) && !strings.Contains(entry, "\ntest: ./file"+run) || !strings.Contains(entry, "\nsays: ") {
			t.Errorf("the planted bug %q does not run its case, or does not say what the case sees", name)
		}
		if !slices.ContainsFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Name == name }) {
			t.Errorf("a bug is planted for %s, which is no case", name)
		}
		names[name] = true
	}
	return names
}

// chances runs the case until it fails, at most three times in which the machine was not held up:
// that can hide a fault of timing.
func chances(ctx context.Context, h drivertest.Harness) (err error) {
	for i := 0; i < 3 && err == nil; {
		heldUp := drivertest.Pauses(time.Second/4, func(context.Context) {})
		err = drivertest.Check(ctx, h, ignore)
		if !heldUp() {
			i++
		}
	}
	return err
}

func ignore(drivertest.Case, error, time.Duration) {}

// patience is how long a case with a fault may hang before it fails.
func patience(c drivertest.Case) time.Duration {
	switch c.Name {
	case "Hold/Abandoned", "Hold/ReleaseIsBounded":
		return 7 * time.Second // longer than the case without a fault
	}
	return 3 * time.Second
}

// Every fault in the table is one that the toy knows.
func TestEveryFaultIsPlanted(t *testing.T) {
	files, err := filepath.Glob("toy_*test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range append(files, "toy_test.go", "suite_test.go") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, fault := range slices.Compact(slices.Sorted(maps.Values(faults))) {
		if !strings.Contains(code.String(), `"`+fault+`"`) {
			t.Errorf("nobody does %q", fault)
		}
	}
}
