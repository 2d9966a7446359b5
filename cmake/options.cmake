# Flags that every target of ours shares.
add_library(deltawire_options INTERFACE)
target_compile_options(deltawire_options INTERFACE -Wall -Wextra
                       $<$<BOOL:${DELTAWIRE_WERROR}>:-Werror>)
if(DELTAWIRE_SANITIZE)
  target_compile_options(deltawire_options INTERFACE -fsanitize=${DELTAWIRE_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(deltawire_options INTERFACE -fsanitize=${DELTAWIRE_SANITIZE})
endif()
if(DELTAWIRE_FUZZ)
  target_compile_options(deltawire_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
