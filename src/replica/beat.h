// Tells the store where this replica is, from a thread of its own: nothing waits for it, and a
// store that cannot be written is no error.
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

// Writes the heartbeat of one process, and leaves those of others alone. A name belongs to who
// wrote it last, as long as he is heard of: another live replica of that name is noticed (event
// replica.name_taken), and this one then writes to an object of its own, beside, until the name is
// free. So neither loses its lease. A replica that restarts, which its id tells, takes its name
// back at once. One thread.
class HeartbeatWriter {
 public:
  HeartbeatWriter(std::shared_ptr<Store> store, std::string name, std::string id);
  // Fills in who and when. `now`: seconds since 1970.
  Status write(Heartbeat beat, int64_t now);

 private:
  Result<bool> is_ours(int64_t now);

  const std::shared_ptr<Store> store_;
  const std::string name_, id_, session_, host_;
  const std::string object_, object_beside_;
  bool spoken_ = false;      // the name was ours: whoever has it since is alive
  bool beside_ = false;      // it is another's
  std::string other_;        // what he wrote last,
  int64_t other_since_ = 0;  // and since when it has been there
};

// Repeats the last heartbeat once a minute, with leases renewed, so that a silent replica is a dead
// one. Destroyed, it sends what it has not sent yet, and stops.
class ReplicaBeat {
 public:
  // `id`: as in a heartbeat.
  ReplicaBeat(std::shared_ptr<Store> store, std::string name, std::string id);
  ~ReplicaBeat();
  ReplicaBeat(const ReplicaBeat&) = delete;
  ReplicaBeat& operator=(const ReplicaBeat&) = delete;

  // `from` and `to`: what is being fetched.
  void fetching(std::optional<uint64_t> from, uint64_t to);
  void holds(const std::optional<Identity>& held, const std::optional<Identity>& serving);
  void paused(uint64_t microseconds);  // of the engine, for what it serves; goes with the next one
  void failed(const Status& status);   // what is held stays

 private:
  void run();

  HeartbeatWriter writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Heartbeat beat_;
  bool due_ = false, stop_ = false;
  bool told_ = false;  // what is held, at least once
  std::thread thread_;
};

// The id of the replica in this folder (its .deltawire): made at its first use, then kept there.
Result<std::string> replica_id(const std::filesystem::path& folder);
// "host:path:id": replicas in containers often share host and path.
std::string default_name(const std::filesystem::path& path, std::string_view id);

}  // namespace deltawire
