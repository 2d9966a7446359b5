#include "serve/api/chain_events.h"

#include <algorithm>
#include <chrono>

#include "serve/api/answers.h"

namespace deltawire {

void ChainEvents::add(ChainEvent event) {
  constexpr size_t kMost = 2000, kMostBytes = 2000;
  for (std::string* const text : {&event.text, &event.replica, &event.host}) {
    text->resize(std::min(text->size(), kMostBytes));  // records of others may have any
  }
  if (event.time == 0) {
    event.time = unix_seconds_now();
    ++counts_[event.kind];
  }
  event.id = last_ = std::max(last_ + 1, uint64_t(event.time * 1000));
  events_.push_back(std::move(event));
  if (events_.size() > kMost) events_.pop_front();
}

std::vector<ChainEvent> ChainEvents::after(uint64_t since, size_t limit) const {
  auto begin = std::partition_point(events_.begin(), events_.end(),
                                    [&](const ChainEvent& one) { return one.id <= since; });
  begin = std::max(begin, events_.end() - ptrdiff_t(std::min(limit, events_.size())));
  return {begin, events_.end()};
}

nlohmann::json to_json(const ChainEvent& event) {
  return {{"id", event.id},
          {"time", event.time},
          {"kind", event.kind},
          {"state", event.state},
          {"version", or_null(event.version)},
          {"replica", text_or_null(event.replica)},
          {"host", text_or_null(event.host)},
          {"text", event.text}};
}

}  // namespace deltawire
