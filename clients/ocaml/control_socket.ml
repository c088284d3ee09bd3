(* HTTP over a fabric's control socket. *)

(** A refused request: the status of HTTP, and the API's message. *)
exception Fabric_error of int * string

(** There was no answer, or none of HTTP. *)
exception Unanswered of string

type t = { path : string; timeout : float }

(** [make path] is the control socket [path]; a request fails that is not answered within [timeout] seconds. Each request
    has a connection of its own, so that threads may share a socket. *)
let make ?(timeout = 90.) path = { path; timeout }

(* Longest answer in bytes, so that another program behind the socket does not fill the memory. *)
let max_answer = 256 * 1024 * 1024

let escaped text =
  let plain = function
    | 'a' .. 'z' | 'A' .. 'Z' | '0' .. '9' | '-' | '_' | '.' | '~' -> true
    | _ -> false
  in
  let one letter =
    if plain letter then String.make 1 letter else Printf.sprintf "%%%02X" (Char.code letter)
  in
  String.concat "" (List.map one (List.of_seq (String.to_seq text)))

(* A path with names in place of its `{}`, and a query. *)
let target path names query =
  let rec fill parts names =
    match (parts, names) with
    | part :: rest, name :: names -> part :: escaped name :: fill rest names
    | parts, _ -> parts
  in
  let rec split path =
    match String.index_opt path '{' with
    | None -> [ path ]
    | Some at -> String.sub path 0 at :: split (String.sub path (at + 2) (String.length path - at - 2))
  in
  let filled = String.concat "" (fill (split path) names) in
  let pair (name, value) = escaped name ^ "=" ^ escaped value in
  if query = [] then filled else filled ^ "?" ^ String.concat "&" (List.map pair query)

let write_all socket text =
  let rec go at =
    if at < String.length text then
      go (at + Unix.write_substring socket text at (String.length text - at))
  in
  go 0

let read_all socket =
  let all = Buffer.create 4096 and part = Bytes.create 65536 in
  let rec go () =
    match Unix.read socket part 0 (Bytes.length part) with
    | 0 -> Buffer.contents all
    | _ when Buffer.length all > max_answer -> raise (Unanswered "the answer is too long")
    | count ->
        Buffer.add_subbytes all part 0 count;
        go ()
  in
  go ()

(* The status and the body of an answer. *)
let parsed answer =
  let rec body_of at =
    match String.index_from_opt answer at '\n' with
    | None -> raise (Unanswered "the answer ends within its header")
    | Some line when line + 2 < String.length answer && String.sub answer (line + 1) 2 = "\r\n" -> line + 3
    | Some line when line + 2 >= String.length answer -> String.length answer
    | Some line -> body_of (line + 1)
  in
  match Scanf.sscanf answer "HTTP/1.%_c %d" Fun.id with
  | status ->
      let body = body_of 0 in
      (status, String.sub answer body (String.length answer - body))
  | exception (Scanf.Scan_failure _ | Failure _ | End_of_file) -> raise (Unanswered "the answer is not HTTP")

(* The message of a refused request. *)
let reason text =
  match Yojson.Safe.from_string text with
  | `Assoc members -> ( match List.assoc_opt "error" members with Some (`String why) -> why | _ -> text)
  | _ -> text
  | exception Yojson.Json_error _ -> text

(** Sends a request, and returns the answer's text. *)
let call ?(query = []) ?body { path = file; timeout } verb path names =
  let body = Option.fold ~none:"" ~some:Yojson.Safe.to_string body in
  let kind = if body = "" then "" else "Content-Type: application/json\r\n" in
  (* With this version the connection ends with the answer, which is not sent in chunks. *)
  let head =
    Printf.sprintf "%s %s HTTP/1.0\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" verb
      (target path names query) kind (String.length body)
  in
  let socket = Unix.socket ~cloexec:true Unix.PF_UNIX Unix.SOCK_STREAM 0 in
  let answer =
    Fun.protect
      ~finally:(fun () -> Unix.close socket)
      (fun () ->
        try
          Unix.setsockopt_float socket Unix.SO_RCVTIMEO timeout;
          Unix.setsockopt_float socket Unix.SO_SNDTIMEO timeout;
          Unix.connect socket (Unix.ADDR_UNIX file);
          write_all socket (head ^ body);
          read_all socket
        with Unix.Unix_error (error, _, _) ->
          raise (Unanswered (Printf.sprintf "%s: %s" file (Unix.error_message error))))
  in
  match parsed answer with
  | status, text when status < 300 -> text
  | status, text -> raise (Fabric_error (status, reason text))
