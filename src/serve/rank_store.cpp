#include "serve/rank_store.h"

#include <mutex>
#include <set>

#include "chain/names.h"
#include "store/forwarding_store.h"

namespace deltawire {
namespace {

class RankStore final : public ForwardingStore {
 public:
  // `stores`: of all ranks, this one's own among them.
  RankStore(unsigned rank, std::vector<std::shared_ptr<Store>> stores)
      : ForwardingStore(stores[0]), rank_(rank), stores_(std::move(stores)) {}

  Result<Capabilities> capabilities() override { return stores_[rank_]->capabilities(); }
  Status put(std::string_view name, const Body& body) override {
    const unsigned holder = holder_of(name);
    if (holder != 0 && holder != rank_) return of_another(name);
    if (holder != 0) drop_old(name);
    return stores_[holder]->put(name, body);
  }
  Result<ObjectInfo> stat(std::string_view name) override { return holder(name).stat(name); }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return holder(name).get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    return holder(name).read(name, offset, out);
  }
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    return holder(name).download(name, size_bytes, sink);
  }
  // Objects of another rank are removed by that rank once their version is gone.
  Status remove(std::string_view name) override {
    const unsigned holder = holder_of(name);
    return holder == 0 || holder == rank_ ? stores_[holder]->remove(name) : Status();
  }

 private:
  unsigned holder_of(std::string_view name) const {
    const unsigned rank = rank_of_object(name).value_or(0);
    return rank < stores_.size() ? rank : 0;
  }
  Status of_another(std::string_view name) const {
    return invalid_argument("rank " + std::to_string(rank_) + ": " + std::string(name) +
                            " belongs to another rank");
  }
  Store& holder(std::string_view name) const { return *stores_[holder_of(name)]; }

  // Once per folder, best effort: removes this rank's parts of versions that rank 0 has removed and
  // of attempts at this version that were never committed.
  void drop_old(std::string_view name) {
    const std::optional<AttemptFolder> next = attempt_folder(name);
    const std::lock_guard lock(mutex_);
    if (!next || next->folder == newest_) return;
    newest_ = next->folder;
    std::set<uint64_t> committed;
    const Status known = list_all(*stores_[0], kManifestPrefix, "", [&](const ObjectInfo& object) {
      if (const auto version = version_of_manifest(object.name)) committed.insert(*version);
      return true;
    });
    std::set<std::string> gone;
    (void)list_all(*stores_[rank_], "", "", [&](const ObjectInfo& object) {
      const std::optional<AttemptFolder> own = attempt_folder(object.name);
      if (own && own->folder != newest_ &&
          (own->version >= next->version || (known.ok() && !committed.contains(own->version)))) {
        gone.insert(object.name);
      }
      return true;
    });
    for (const std::string& object : gone) (void)stores_[rank_]->remove(object);
  }

  const unsigned rank_;
  const std::vector<std::shared_ptr<Store>> stores_;
  std::mutex mutex_;
  std::string newest_;  // folder of this rank
};

}  // namespace

Result<std::shared_ptr<Store>> open_rank_store(unsigned rank, std::shared_ptr<Store> own,
                                               std::vector<std::string> urls,
                                               const StoreOptions& options) {
  if (rank >= urls.size()) {
    return invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(urls.size()));
  }
  std::vector<std::shared_ptr<Store>> stores;
  for (unsigned other = 0; other < urls.size(); ++other) {
    if (other == rank) {
      stores.push_back(own);
      continue;
    }
    DW_ASSIGN_OR_RETURN(stores.emplace_back(), open_store(urls[other], options));
  }
  return std::shared_ptr<Store>(std::make_shared<RankStore>(rank, std::move(stores)));
}

std::string url_of_holder(const std::vector<std::string>& urls, std::string_view name) {
  const std::optional<unsigned> rank = rank_of_object(name);
  return rank && *rank != 0 && *rank < urls.size() ? urls[*rank] : "";
}

}  // namespace deltawire
