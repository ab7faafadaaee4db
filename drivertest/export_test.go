package drivertest

// Pauses is for tests of the cases.
var Pauses = pauses
