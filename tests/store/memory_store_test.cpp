#include "store/memory_store.h"

#include "conformance.h"

namespace deltawire::testing {

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, ::testing::Values(StoreCase{[] {
                           return OpenedStore{std::make_shared<MemoryStore>(), ""};
                         }}));

}  // namespace deltawire::testing
