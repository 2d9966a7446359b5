// Objects that a server announced before their version was committed, fetched into memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "store/http/answers.h"
#include "store/push_source.h"

namespace deltawire::http {

// Thread-safe.
class AheadObjects {
 public:
  using Fetch = std::function<Status(const std::string& name, std::span<uint8_t> out)>;

  uint64_t last_number() const;
  void announce(std::vector<AnnouncedObject> objects);
  // Objects are dropped at the second commit after they were announced.
  void committed();

  // The first object after `seen`, fetched if necessary; empty: none is announced. Skips objects
  // that cannot be fetched or exceed the memory limit.
  std::vector<SentObject> after(uint64_t seen, const Fetch& fetch);
  // Null: it is not here.
  std::shared_ptr<const Body> find(std::string_view name) const;
  void drop(std::string_view name);

 private:
  struct Entry {
    AnnouncedObject object;
    std::shared_ptr<const Body> body;  // once it was fetched
    bool is_old = false;
  };
  uint64_t held_bytes() const;

  std::mutex fetching_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;  // by number
  uint64_t last_number_ = 0;
};

}  // namespace deltawire::http
