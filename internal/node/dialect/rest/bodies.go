package rest

// The bodies of the short paths. Numbers are below 2^53 but for counters and
// sequences.

type none struct{}

// restClaiming are the terms on which something is taken.
type restClaiming struct {
	HolderID  string `json:"holder_id" doc:"the caller's name, for people"`
	TTLMS     int64  `json:"ttl_ms" doc:"how long it is held unless renewed; 0 or absent: 30000; not with lease_id"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; 0: one try; absent: as long as the call lasts"`
	LeaseID   int64  `json:"lease_id" doc:"the lease to hang it on; 0 or absent: one of its own, with ttl_ms"`
}

// restTerms are those of what has no value of its own.
type restTerms struct {
	restClaiming
	Metadata string `json:"metadata" doc:"kept with it, at most 4 KiB"`
}

type restHold struct {
	Name     string `json:"name" doc:"what is held"`
	Token    uint64 `json:"token" doc:"the fencing token: greater than that of every earlier grant of the name"`
	LeaseID  int64  `json:"lease_id" doc:"the lease that it ends with"`
	TTLMS    int64  `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
	Revision int64  `json:"revision" doc:"the revision of the grant"`
}

type restToken struct {
	Token uint64 `json:"token" doc:"the token of the hold"`
}

type restRenew struct {
	Token uint64 `json:"token" doc:"the token of the hold"`
	TTLMS int64  `json:"ttl_ms" doc:"how long from now; 0: as when it was taken; a deadline only grows"`
}

type restRenewed struct {
	TTLMS int64 `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
}

type restDone struct {
	Revision int64 `json:"revision" doc:"the revision of the change"`
}

type restName struct {
	Name    string      `json:"name" doc:"the name"`
	Kind    string      `json:"kind,omitempty" doc:"what it is; absent: nobody holds or awaits it"`
	Limit   int64       `json:"limit,omitempty" doc:"its capacity"`
	Used    int64       `json:"used,omitempty" doc:"how much of it is taken"`
	Holding int         `json:"holding" doc:"how many have it"`
	Waiting int         `json:"waiting" doc:"how many wait"`
	Holders []restClaim `json:"holders" doc:"the holders"`
	Waiters []restClaim `json:"waiters" doc:"the waiters, in order"`
	Next    string      `json:"next,omitempty" doc:"there are more of them: give this as after"`
}

// restPage says which part of a long answer is wanted.
type restPage struct {
	After string `json:"after" doc:"go on from there: the next of an earlier answer"`
	Limit int64  `json:"limit" doc:"at most so many; 0 or absent: 1000, which is the most"`
}

type restMode struct {
	restTerms
	Mode string `json:"mode" doc:"read or write"`
}

type restShare struct {
	restTerms
	Weight *int64 `json:"weight" doc:"how much, at least 1; absent: 1"`
	Limit  int64  `json:"limit" doc:"its limit when it is new; 0 or absent: the one it has"`
}

type restLimit struct {
	Limit int64 `json:"limit" doc:"the new limit, at least 1"`
}

type restCandidate struct {
	restClaiming
	Value string `json:"value" doc:"what it proclaims once elected, at most 4 KiB"`
}

type restProclaim struct {
	Token uint64 `json:"token" doc:"the leader's token"`
	Value string `json:"value" doc:"the new value, at most 4 KiB"`
}

type restLeader struct {
	Elected     bool   `json:"elected" doc:"somebody leads"`
	HolderID    string `json:"holder_id,omitempty" doc:"the holder's name, for people"`
	Value       string `json:"value,omitempty" doc:"what it proclaims, if that is text"`
	ValueBase64 string `json:"value_base64,omitempty" doc:"what it proclaims in base64, if it is not text"`
	Token       uint64 `json:"token,omitempty" doc:"its fencing token"`
}

type restUpgrade struct {
	Token     uint64 `json:"token" doc:"the reader's token"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restAmount struct {
	Amount   *uint64 `json:"amount" doc:"how much; absent: 1"`
	Unsigned bool    `json:"unsigned" doc:"the counter is unsigned: 0 to 2^64-1"`
}

type restUnsigned struct {
	Unsigned bool `json:"unsigned" doc:"the counter is unsigned: 0 to 2^64-1"`
}

type restSet struct {
	Value         *int64  `json:"value" doc:"the value of a signed counter"`
	UnsignedValue *uint64 `json:"unsigned_value" doc:"the value of an unsigned counter"`
	Unsigned      bool    `json:"unsigned" doc:"the counter is unsigned"`
}

type restSwap struct {
	restSet
	Expected         *int64  `json:"expected" doc:"what a signed counter must be"`
	UnsignedExpected *uint64 `json:"unsigned_expected" doc:"what an unsigned counter must be"`
}

type restValue struct {
	Value         int64   `json:"value" doc:"the value of a signed counter"`
	UnsignedValue *uint64 `json:"unsigned_value,omitempty" doc:"the value of an unsigned counter; absent: it is a signed one"`
}

type restSwapped struct {
	restValue
	Swapped bool `json:"swapped" doc:"it was the expected value, and is set"`
}

type restReserve struct {
	Count *uint64 `json:"count" doc:"how many, at least 1; absent: 1"`
	Start *uint64 `json:"start" doc:"the first number of a new sequence, at least 1; absent: 1"`
}

type restRange struct {
	First uint64 `json:"first" doc:"first to first+count-1 are the caller's"`
	Count uint64 `json:"count" doc:"how many"`
}

type restNext struct {
	Next uint64 `json:"next" doc:"the number that would be given next"`
}

type restCountDown struct {
	By    *int64 `json:"by" doc:"how much; absent: 1; 0: only tell what is left"`
	Count int64  `json:"count" doc:"the count of a new latch; 0 or absent: it must exist"`
}

type restLeft struct {
	Left int64 `json:"left" doc:"what is left; 0: the latch is open"`
}

type restWait struct {
	Count     int64  `json:"count" doc:"the count of a new latch; 0 or absent: it must exist"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restArrive struct {
	Parties   int64  `json:"parties" doc:"how many have to come; 0 or absent: as many as it has"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restPut struct {
	Value          *string `json:"value" doc:"the value as text"`
	ValueBase64    []byte  `json:"value_base64" doc:"or any bytes, in base64"`
	LeaseID        int64   `json:"lease_id" doc:"the lease that it ends with; 0 or absent: none"`
	ExpireMS       int64   `json:"expire_ms" doc:"it ends by itself after so long; 0 or absent: it does not"`
	ExpectRevision *uint64 `json:"expect_revision" doc:"write only if its mod_revision is this one; 0: only if it is absent"`
}

type restDelete struct {
	ExpectRevision *uint64 `json:"expect_revision" doc:"remove only if its mod_revision is this one"`
}

type restDeleted struct {
	Deleted int64 `json:"deleted" doc:"how many keys were removed"`
}

type restKey struct {
	Key            string `json:"key" doc:"the key"`
	Value          string `json:"value,omitempty" doc:"its value, if that is text"`
	ValueBase64    string `json:"value_base64,omitempty" doc:"its value in base64, if it is not text"`
	CreateRevision uint64 `json:"create_revision" doc:"the revision of its creation"`
	ModRevision    uint64 `json:"mod_revision" doc:"the revision of its last change"`
	Version        uint64 `json:"version" doc:"1 when created, then counted up"`
	ExpiresInMS    int64  `json:"expires_in_ms,omitempty" doc:"time left to its own expiry"`
}

type restList struct {
	Limit    int64  `json:"limit" doc:"at most so many; 0 or absent: as many as fit into about 1 MiB, at most 10000"`
	After    string `json:"after" doc:"begin behind this key"`
	KeysOnly bool   `json:"keys_only" doc:"leave out the values"`
	Count    bool   `json:"count" doc:"count all keys with the prefix, at most 10000"`
}

type restKeys struct {
	Keys     []restKey `json:"keys" doc:"the keys with the prefix, in order"`
	More     bool      `json:"more" doc:"there are more"`
	Next     string    `json:"next,omitempty" doc:"there are more: give this as after"`
	Count    int64     `json:"count" doc:"how many are told; if asked for, how many there are"`
	Revision int64     `json:"revision" doc:"the revision of the answer"`
}

type restOpen struct {
	HolderID string `json:"holder_id" doc:"the holder's name, for people"`
	TTLMS    int64  `json:"ttl_ms" doc:"how long it lives unless kept; 0 or absent: 30000"`
	Policy   string `json:"policy" doc:"when its holds are freed if it is not kept: at-deadline (or absent), on-next-acquire, never"`
	GraceMS  int64  `json:"grace_ms" doc:"how long stale holds are left alone; with on-next-acquire only"`
}

type restSession struct {
	LeaseID  int64    `json:"lease_id" doc:"the lease"`
	TTLMS    int64    `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
	HolderID string   `json:"holder_id" doc:"the holder's name, for people"`
	Names    []string `json:"names" doc:"what it holds"`
	Waits    []string `json:"waits" doc:"what it waits for"`
	Keys     []string `json:"keys" doc:"the keys that end with it"`
	Next     string   `json:"next,omitempty" doc:"there is more of that: give this as after"`
}

type restLease struct {
	LeaseID int64 `json:"lease_id" doc:"the lease"`
	TTLMS   int64 `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
}

type restTTL struct {
	TTLMS int64 `json:"ttl_ms" doc:"how long from now; 0 or absent: as when it was opened"`
}
