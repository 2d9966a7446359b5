// Versions straight from a publisher to its replicas, beside the store or in place of one.
//
//   auto shipper = Shipper::listen(store, {.address = "10.0.0.1:7000", .secret = secret});
//   auto publisher = Publisher::open((*shipper)->store());        // the trainer
//
//   auto store = join_ship({.hub = "10.0.0.1:7000", .secret = secret});
//   auto replica = Replica::open(*store, "ckpt");                 // a replica, on any host
//
// What travels are the objects that the publisher puts into its own store. So versions, digests,
// signatures and reports are the same both ways, and whatever did not arrive can still be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/keys.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// ---- the publisher's side

struct ShipOptions {
  std::string address = "127.0.0.1:0";  // to listen on; port 0: any
  // By which replicas reach this process; empty: as in `address`, or the name of this machine.
  std::string host = {};
  // What every replica must know, too; never sent. Empty: the network decides who may join, and
  // then only loopback may be listened on, unless `open_to_all`.
  std::string secret = {};
  bool open_to_all = false;
  std::string backend = "tcp";                  // of the carrier: "tcp"; Python adds "gloo", "nccl"
  uint64_t buffer_bytes = uint64_t{512} << 20;  // what goes at once; two of them are held
  // Who takes less at once would hold up all others: it is told of versions, and reads them.
  uint64_t least_buffer_bytes = uint64_t{1} << 20;
  double timeout_seconds = 60;  // of a buffer, a message, an acknowledgement
  double answer_seconds = 5;    // a replica that is silent for so long is not waited for
  // A replica that missed so many versions, or twice, four times ... as many, finds a merged delta;
  // 0: none is made. Takes two states of the model in the folder for temporary files, for most
  // codecs; not done where those are larger than 16 GiB, or that folder has little room.
  uint64_t merge_after = 4;
  // Collects garbage after each version, so that a store in memory does not grow for ever: keeps so
  // many versions, and what leads to them; 0: keeps all.
  uint64_t keep_versions = 0;
  int64_t keep_grace_seconds = 60;  // readers of what is removed have so long to end
  Keys keys = {};                   // sign merged deltas; of a signed chain
};

// What became of a version at one replica.
struct Shipped {
  std::string name;                      // as the replica calls itself
  std::string from;                      // address
  std::optional<unsigned> rank = {};     // in the group that carried it; none: was not in it
  std::optional<uint64_t> version = {};  // that it holds; none: nothing, or it does not say
  uint64_t bytes = 0;                    // sent to it since the version before was committed
  double seconds = 0;                    // from the commit until it held the version
  std::string error = {};                // empty: it holds the version
};

struct ShipReport {
  std::optional<uint64_t> version = {};  // the newest one that was committed; none: none yet
  std::string carrier = {};              // "tcp", ...; empty: nobody was there to carry it to
  uint64_t epoch = 0;                    // how many groups there were so far
  uint64_t bytes = 0;                    // that went to the whole group at once
  std::vector<Shipped> replicas = {};
  // Since the first object of the version was put: "encode" (to the commit), "send", "apply".
  std::vector<Phase> phases = {};
  std::vector<std::string> warnings = {};  // one for each replica that does not hold it, and why
};

// Thread-safe. A replica that fails, hangs or dies never fails a publish: the version stands, the
// report names the replica, and what it missed it can still have.
class Shipper {
 public:
  // `store` holds the chain: a folder, S3, or memory.
  static Result<std::shared_ptr<Shipper>> listen(std::shared_ptr<Store> store, ShipOptions options);
  virtual ~Shipper() = default;  // lets all replicas go

  // To publish to; keeps the shipper alive. What is put goes to the replicas as well, in the
  // background: put() waits while more than two buffers are on their way. The commit of a version
  // is told when all of it has been sent.
  virtual std::shared_ptr<Store> store() = 0;
  virtual std::string address() const = 0;  // "host:port" to join
  // Until so many replicas follow, or the time is over (Unavailable says how many do).
  virtual Status wait_for(size_t num_replicas, double timeout_seconds) = 0;
  // Waits until the newest version has been sent, and every replica holds it, has failed, or the
  // time is over.
  virtual ShipReport settle() = 0;
  virtual ShipReport report() const = 0;  // as it is now
};

// ---- the replica's side

struct JoinOptions {
  std::string hub = {};  // "host:port" of the publisher
  std::string secret = {};
  std::string name = {};  // of this replica, for reports; empty: host and process
  // Holds the same chain: parts that were not sent are read there first, and everything while the
  // publisher is away. Null: the publisher is asked for them.
  std::shared_ptr<Store> behind = {};
  bool pushed = true;  // false: nothing is sent here; new versions are told, and read
  uint64_t buffer_bytes = uint64_t{512} << 20;  // no more at once; little: see least_buffer_bytes
  uint64_t memory_bytes = uint64_t{2} << 30;    // of parts that wait to be read; others go to
  std::filesystem::path scratch = {};           // this folder; empty: that for temporary files
  uint64_t scratch_bytes = UINT64_MAX;          // and what does not fit is read again
  double timeout_seconds = 30;                  // to join, of a message, of a buffer
};

// A store that holds what the publisher's holds. Only heartbeats can be put there. It joins again
// by itself when the publisher was away; until then calls fail with Unavailable, unless `behind`
// can answer. Follow watches (deltawire follow, Replica.follow) wake when a version is told.
// Unavailable when nobody answers in time and nothing is behind; InvalidArgument when the secrets
// differ.
Result<std::shared_ptr<Store>> join_ship(JoinOptions options);

// The first line of a file; empty without one. InvalidArgument when that is empty.
Result<std::string> read_ship_secret(const std::filesystem::path& path);

// Makes open_store() know "ship://HOST:PORT", with StoreOptions::secret_file and ::behind.
void register_ship_stores();

}  // namespace deltawire
