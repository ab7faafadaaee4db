package main

// suites is what make bench runs; each line of its table is a bound here.
var suites = []suite{}
