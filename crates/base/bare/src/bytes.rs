//! What compiled code calls to copy, fill and compare bytes. A copy of up to 32 bytes loads all of them before it
//! stores any, and has no loop; a longer one moves 32 bytes at a time, and its last bytes twice. There is no
//! `rep movs`, whose start takes longer than most copies.

use core::arch::global_asm;

// The functions of C's string.h. All bytes that a part loads before its loop are those that the loop may
// overwrite.
global_asm!(
    r#"
.pushsection .text.bytes, "ax"
.global ringway_copy
.global ringway_fill
.global ringway_compare
.balign 32
ringway_copy:
  mov rax, rdi
  cmp rdx, 16
  jb 20f
  movups xmm2, [rsi + rdx - 16]
  cmp rdx, 32
  ja 10f
  movups xmm0, [rsi]
  movups [rdi], xmm0
  movups [rdi + rdx - 16], xmm2
  ret
10:
  mov rcx, rdi
  sub rcx, rsi
  cmp rcx, rdx
  jb 15f                    // the target begins within the source
  movups xmm3, [rsi + rdx - 32]
  lea r8, [rdi + rdx - 32]
11:
  movups xmm0, [rsi]
  movups xmm1, [rsi + 16]
  add rsi, 32
  movups [rdi], xmm0
  movups [rdi + 16], xmm1
  add rdi, 32
  cmp rdi, r8
  jb 11b
  movups [r8], xmm3
  movups [r8 + 16], xmm2
  ret
15:
  movups xmm2, [rsi]
  movups xmm3, [rsi + 16]
16:
  movups xmm0, [rsi + rdx - 16]
  movups xmm1, [rsi + rdx - 32]
  movups [rdi + rdx - 16], xmm0
  movups [rdi + rdx - 32], xmm1
  sub rdx, 32
  cmp rdx, 32
  ja 16b
  movups [rdi], xmm2
  movups [rdi + 16], xmm3
  ret
20:
  cmp edx, 8
  jb 21f
  mov rcx, [rsi]
  mov r8, [rsi + rdx - 8]
  mov [rdi], rcx
  mov [rdi + rdx - 8], r8
  ret
21:
  cmp edx, 4
  jb 22f
  mov ecx, [rsi]
  mov r8d, [rsi + rdx - 4]
  mov [rdi], ecx
  mov [rdi + rdx - 4], r8d
  ret
22:
  test edx, edx
  jz 23f
  mov r9d, edx
  shr r9d
  movzx ecx, byte ptr [rsi]
  movzx r8d, byte ptr [rsi + r9]
  movzx r10d, byte ptr [rsi + rdx - 1]
  mov [rdi], cl
  mov [rdi + r9], r8b
  mov [rdi + rdx - 1], r10b
23:
  ret

.balign 32
ringway_fill:
  mov rax, rdi
  movzx esi, sil
  mov rcx, 0x0101010101010101
  imul rsi, rcx
  cmp rdx, 16
  jb 35f
  movq xmm0, rsi
  punpcklqdq xmm0, xmm0
  lea r8, [rdi + rdx - 16]
30:
  movups [rdi], xmm0
  add rdi, 16
  cmp rdi, r8
  jb 30b
  movups [r8], xmm0
  ret
35:
  cmp edx, 8
  jb 36f
  mov [rdi], rsi
  mov [rdi + rdx - 8], rsi
  ret
36:
  cmp edx, 4
  jb 37f
  mov [rdi], esi
  mov [rdi + rdx - 4], esi
  ret
37:
  test edx, edx
  jz 38f
  mov r9d, edx
  shr r9d
  mov [rdi], sil
  mov [rdi + r9], sil
  mov [rdi + rdx - 1], sil
38:
  ret

.balign 32
ringway_compare:
  cmp rdx, 8
  jb 43f
  lea r8, [rdx - 8]         // where the last eight bytes begin
  xor ecx, ecx
40:
  cmp rcx, r8
  jae 41f
  mov rax, [rdi + rcx]
  mov r9, [rsi + rcx]
  add rcx, 8
  cmp rax, r9
  je 40b
  jmp 42f
41:
  mov rax, [rdi + r8]
  mov r9, [rsi + r8]
42:
  bswap rax                 // the first byte that differs decides
  bswap r9
  xor ecx, ecx
  cmp rax, r9
  seta cl
  sbb ecx, 0
  mov eax, ecx
  ret
43:
  xor ecx, ecx
  xor eax, eax
44:
  cmp rcx, rdx
  je 45f
  movzx eax, byte ptr [rdi + rcx]
  movzx r9d, byte ptr [rsi + rcx]
  inc rcx
  sub eax, r9d
  jz 44b
45:
  ret
.popsection
"#
);

// An image has no library of C, and no unwinder: a panic ends it, but compiled parts of `alloc` name one.
#[cfg(all(feature = "image", not(test)))]
global_asm!(
    r#"
.global memcpy
.global memmove
.global memset
.global memcmp
.global bcmp
.set memcpy, ringway_copy
.set memmove, ringway_copy
.set memset, ringway_fill
.set memcmp, ringway_compare
.set bcmp, ringway_compare
.pushsection .text.bytes, "ax"
.global _Unwind_Resume
.global rust_eh_personality
_Unwind_Resume:
rust_eh_personality:
  ud2
.popsection
"#
);

#[cfg(test)]
mod tests {
    unsafe extern "C" {
        fn ringway_copy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
        fn ringway_fill(to: *mut u8, byte: i32, len: usize) -> *mut u8;
        fn ringway_compare(one: *const u8, two: *const u8, len: usize) -> i32;
    }

    /// Space for two copies of the longest length, with bytes around them.
    const SPACE: usize = 1024;

    fn numbered() -> [u8; SPACE] {
        core::array::from_fn(|at| (at * 7 + at / 256) as u8)
    }

    #[test]
    fn copies_of_every_length_may_overlap() {
        let distances = [0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 100, 300];
        for len in 0..200 {
            for distance in distances {
                for (from, to) in [(400, 400 + distance), (400, 400 - distance)] {
                    let (mut copied, mut expected) = (numbered(), numbered());
                    expected.copy_within(from..from + len, to);
                    let base = copied.as_mut_ptr();
                    // SAFETY: both ranges are within the array.
                    let result = unsafe { ringway_copy(base.add(to), base.add(from), len) };
                    assert_eq!(result.addr(), base.addr() + to);
                    assert_eq!(copied, expected, "{len} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_every_length_are_filled() {
        for len in 0..200 {
            let (mut filled, mut expected) = (numbered(), numbered());
            expected[100..100 + len].fill(0xa5);
            // SAFETY: the range is within the array. Only the lowest byte counts.
            unsafe { ringway_fill(filled.as_mut_ptr().add(100), 0x1a5, len) };
            assert_eq!(filled, expected, "{len} bytes");
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for len in 0..100 {
            let one = numbered();
            // SAFETY: all ranges are within the arrays.
            let compare =
                |two: &[u8; SPACE]| unsafe { ringway_compare(one.as_ptr().add(3), two.as_ptr().add(3), len) };
            for differs in 0..len {
                for value in [0, 0x7f, 0x80, 0xff] {
                    let mut two = numbered();
                    two[3 + differs] = value;
                    // What follows doesn't count.
                    two[3 + differs + 1] ^= 0xff;
                    let order = one[3..3 + len].cmp(&two[3..3 + len]);
                    assert_eq!(compare(&two).signum(), order as i32, "{len} {differs} {value}");
                }
            }
            let mut two = numbered();
            two[3 + len] ^= 1;
            assert_eq!(compare(&two), 0, "{len}");
        }
    }
}
