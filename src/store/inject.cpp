#include "store/inject.h"

#include <deltawire_faults.h>

#include <utility>

#if DELTAWIRE_FAULTS
#include "store/fault_spec.h"
#include "store/faulty_store.h"
#endif

namespace deltawire {

std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> inject_faults(
    std::string spec) {
  if (spec.empty()) return nullptr;
#if DELTAWIRE_FAULTS
  return [spec = std::move(spec)](std::shared_ptr<Store> store) -> Result<std::shared_ptr<Store>> {
    DW_ASSIGN_OR_RETURN(std::vector<Fault> faults, parse_faults(spec));
    return std::shared_ptr<Store>(
        std::make_shared<FaultyStore>(std::move(store), std::move(faults)));
  };
#else
  return [](const std::shared_ptr<Store>&) -> Result<std::shared_ptr<Store>> {
    return unsupported("this build has no faults; configure with -DDELTAWIRE_TESTS=ON");
  };
#endif
}

}  // namespace deltawire
