# muster_tsan_knows_absl(TARGET): in thread sanitizer builds, tells it what absl::Mutex of Debian's package orders.
function(muster_tsan_knows_absl target)
  if(NOT MUSTER_SANITIZE MATCHES thread)
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/tsan/absl_mutex.cc)
  foreach(symbol Mutex4LockEv Mutex6UnlockEv Mutex7TryLockEv Mutex10ReaderLockEv Mutex12ReaderUnlockEv Mutex5AwaitERKNS0_9ConditionE
          Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE)
    target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian35${symbol})
  endforeach()
  foreach(symbol CondVar4WaitEPNS0_5MutexE CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
          CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)
    target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian37${symbol})
  endforeach()
  target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian319ReleasableMutexLock7ReleaseEv)
endfunction()
