package natshold

// For tests of the package from outside.
var (
	ToBucket   = toBucket
	FromBucket = fromBucket
)
