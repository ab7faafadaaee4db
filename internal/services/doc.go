//go:build unix

// Package services gives a test real servers within seconds: Redis,
// PostgreSQL, PgBouncer and NATS with JetStream, each private to the test, on a
// loopback port of its own, in a directory of its own.
//
// A server can be killed, frozen, thawed and restarted on its port and data
// (see [Process]), and a [Link] between client and server can be cut, delayed
// or broken. Everything ends with the test; when the test binary itself is
// killed, a guard process ends what it started and removes its files.
//
// A package with tests that use a server each pays for it each time: about 20 ms
// for Redis, about a second for PostgreSQL. Package tests that can live with
// one server for all use the Shared functions, and every package that uses
// PostgreSQL gains by this TestMain, because initdb then runs only once:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }
//
// A program that is missing is installed when the tests run as root on Debian.
// Elsewhere the test fails and says what to install. Instead of installing,
// HOLDFAST_TEST_REDIS_URL, HOLDFAST_TEST_POSTGRES_URL and
// HOLDFAST_TEST_NATS_URL can name running servers: a Shared server is always
// the one so named, a private one is when its program is missing. Such a server
// is not empty and is not ours, so a test that gives options or asks to kill or
// freeze it fails and says so.
//
// A running server costs the test binary one goroutine. A leak check inside a
// test belongs behind goleak.IgnoreCurrent, taken after the server was started.
package services
