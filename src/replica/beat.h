// Writes the state of this replica to the store, from its own thread. Nothing waits for it, and a
// store that cannot be written is not an error.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "chain/heartbeat.h"
#include "deltawire/store.h"

namespace deltawire {

// Writes the heartbeat of one process and never overwrites those of others. A name belongs to the
// last writer as long as it keeps writing. When another live replica has the name (event
// replica.name_taken), this one writes to a separate object until the name is free, so neither
// loses its lease. A restarted replica is recognised by its id and takes its name back at once. One
// thread.
class HeartbeatWriter {
 public:
  HeartbeatWriter(std::shared_ptr<Store> store, std::string name, std::string id);
  // Fills in name, id, session and time. `now`: seconds since 1970.
  Status write(Heartbeat beat, int64_t now);

 private:
  Result<bool> is_ours(int64_t now);

  const std::shared_ptr<Store> store_;
  const std::string name_, id_, session_, host_;
  const std::string object_, object_beside_;
  bool spoken_ = false;      // the name was ours: whoever has it since is alive
  bool beside_ = false;      // another replica has the name, and we write to a separate object
  std::string other_;        // the last heartbeat of that replica
  int64_t other_since_ = 0;  // when we first saw that heartbeat
};

// Sends the last heartbeat again every minute and renews its lease, so a replica without heartbeats
// is dead. The destructor sends what is still due, then stops.
class ReplicaBeat {
 public:
  // `id`: as in Heartbeat.
  ReplicaBeat(std::shared_ptr<Store> store, std::string name, std::string id);
  ~ReplicaBeat();
  ReplicaBeat(const ReplicaBeat&) = delete;
  ReplicaBeat& operator=(const ReplicaBeat&) = delete;

  // `from` and `to`: the versions of the fetch.
  void fetching(std::optional<uint64_t> from, uint64_t to);
  void holds(const std::optional<Identity>& held, const std::optional<Identity>& serving);
  // how long the engine paused for the version that it serves; sent with the next heartbeat
  void paused(uint64_t microseconds);
  void failed(const Status& status);  // the replica keeps what it holds

 private:
  void run();

  HeartbeatWriter writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Heartbeat beat_;
  bool due_ = false, stop_ = false;
  bool told_ = false;  // holds() was called at least once
  std::thread thread_;
};

// The id of the replica in this folder (its .deltawire). It is created at first use and kept there.
Result<std::string> replica_id(const std::filesystem::path& folder);
// "host:path:id". The id is included because replicas in containers often share host and path.
std::string default_name(const std::filesystem::path& path, std::string_view id);

}  // namespace deltawire
