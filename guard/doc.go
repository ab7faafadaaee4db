// Package guard says whether work may begin, and if not, what it waits for.
//
// A [Condition] is a value: a leaf such as [LockFree] or [BranchMerged], or [All],
// [Any] and [Not] of others. [Condition.RequiredInputs] lists the facts that it takes,
// somebody gathers them, and [Condition.Evaluate] decides:
//
//	c := guard.All(guard.LockFree("main-branch"), guard.Not(guard.FileExists(".freeze")))
//	r := c.Evaluate(facts)
//	if r.Outcome != guard.Passed {
//		fmt.Println(r) // every leaf, with what it wants and what it got
//	}
//
// The package is pure: it asks nobody. Evaluation is three-valued (Kleene): a fact that
// is missing or could not be had makes a leaf unknown, and unknown leaves matter only
// where the others do not decide. The order of the parts never changes a result, and
// the same facts give the same bytes.
//
// A condition only looks. Between the look and the work another may take the lock that
// was free: what has to stay true has to be held.
package guard
