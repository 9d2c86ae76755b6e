//! Fuzzes the decoder of Redis's protocol: any bytes, whole and cut in two, ask for the same commands.


pub(crate) fn target(data: (u16, &[u8])) {
    let (split, bytes) = data;
    let whole = forebay_server::decode_resp(bytes, bytes.len());
    assert_eq!(forebay_server::decode_resp(bytes, usize::from(split)), whole);
    assert_eq!(forebay_server::decode_resp(bytes, 0), whole);
}
