# Unity builds: the sources of a folder are compiled in a few large files, so that headers are read
# once for many. CMAKE_UNITY_BUILD=ON asks for it; docs/building.md says which trees do.

# deltawire_unity(TARGET): groups of at most 60 neighbours, never across layers: what a layer must not see it
# does not see. Of groups of 8 a compiler makes half as much again of the same templates. Whoever edits all day
# takes the dev tree, where every file is its own.
function(deltawire_unity target)
  set(limit 60)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    if(IS_ABSOLUTE "${folder}")
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    endif()
    string(REGEX REPLACE "/.*" "" folder "${folder}")
    string(MAKE_C_IDENTIFIER "in_${folder}" folder)
    list(APPEND ${folder} ${source})
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    # As many groups as the limit asks for, all of the same size.
    list(LENGTH ${folder} size)
    math(EXPR groups "(${size} + ${limit} - 1) / ${limit}")
    set(index 0)
    foreach(source ${${folder}})
      math(EXPR group "${index} * ${groups} / ${size}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(is_unity ${target} UNITY_BUILD)
  if(is_unity AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # it takes the included sources for headers
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()
