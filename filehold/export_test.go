package filehold

// LockFile is lockFile for tests.
var LockFile = lockFile
